#pragma once

namespace lyceum {

/// The position of a text within a document: the whole document by default.
struct TextPart {
  bool begins = true;  // the text is the beginning of the document
  bool ends = true;    // the text is the end of the document
};

}  // namespace lyceum
