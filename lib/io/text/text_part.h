#pragma once

namespace lyceum {

/// Which part of a document a text is; the whole of it by default.
struct TextPart {
  bool begins = true;  // the document begins with it
  bool ends = true;    // the document ends with it
};

}  // namespace lyceum
