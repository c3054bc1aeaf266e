#include "io/data/tokenizer/json/regex_properties.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace lyceum {

namespace {

/// A property, and characters or another name of it.
using PropertyEntry = std::pair<std::string_view, std::string_view>;

/// The characters that Unicode 15 and 16 added, by general category, as contents of a character class.
constexpr std::array<PropertyEntry, 13> new_characters{{
    {"Lu", R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})"},
    {"Ll", R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})"},
    {"Lm", R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})"},
    {"Lo",
     R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d43}-\x{16d6a}\x{18cff}\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"Mn",
     R"(\x{897}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113bb}-\x{113c0}\x{113ce}\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f36}-\x{11f3a}\x{11f40}\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{16129}\x{1612d}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})"},
    {"Mc",
     R"(\x{cf3}\x{113b8}-\x{113ba}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113cd}\x{113cf}\x{1171e}\x{11f03}\x{11f34}-\x{11f35}\x{11f3e}-\x{11f3f}\x{11f41}\x{1612a}-\x{1612c})"},
    {"Cf", R"(\x{13439}-\x{1343f})"},
    {"Nd",
     R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139}\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})"},
    {"No", R"(\x{1d2c0}-\x{1d2d3})"},
    {"Pd", R"(\x{10d6e})"},
    {"Po",
     R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1}\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})"},
    {"Sm", R"(\x{10d8e}-\x{10d8f})"},
    {"So",
     R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{1cc00}-\x{1ccef}\x{1cd00}-\x{1ceb3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8}\x{1fbcb}-\x{1fbef})"},
}};

/// The characters that Unicode 15 and 16 added to scripts and to Emoji.
constexpr std::array<PropertyEntry, 16> new_in_scripts{{
    {"arabic", R"(\x{897}\x{10ec2}-\x{10ec4}\x{10efc}-\x{10eff})"},
    {"balinese", R"(\x{1b4e}-\x{1b4f}\x{1b7f})"},
    {"common",
     R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{1cc00}-\x{1ccf9}\x{1cd00}-\x{1ceb3}\x{1d2c0}-\x{1d2d3}\x{1f6dc}\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8}\x{1fbcb}-\x{1fbef})"},
    {"cyrillic", R"(\x{1c89}-\x{1c8a}\x{1e030}-\x{1e06d}\x{1e08f})"},
    {"devanagari", R"(\x{11b00}-\x{11b09})"},
    {"egyptianhieroglyphs", R"(\x{1342f}\x{13439}-\x{13455}\x{13460}-\x{143fa})"},
    {"emoji",
     R"(\x{1f6dc}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89}\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9}\x{1faf7}-\x{1faf8})"},
    {"han", R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})"},
    {"hiragana", R"(\x{1b132})"},
    {"kannada", R"(\x{cf3})"},
    {"katakana", R"(\x{1b155})"},
    {"khitansmallscript", R"(\x{18cff})"},
    {"khojki", R"(\x{1123f}-\x{11241})"},
    {"lao", R"(\x{ece})"},
    {"latin", R"(\x{a7cb}-\x{a7cd}\x{a7da}-\x{a7dc}\x{1df25}-\x{1df2a})"},
    {"myanmar", R"(\x{116d0}-\x{116e3})"},
}};

/// Other names of these properties. The two properties of emoji have the same new characters.
constexpr std::array<PropertyEntry, 17> script_aliases{{
    {"arab", "arabic"},
    {"bali", "balinese"},
    {"cyrl", "cyrillic"},
    {"deva", "devanagari"},
    {"egyp", "egyptianhieroglyphs"},
    {"emojipresentation", "emoji"},
    {"epres", "emoji"},
    {"hani", "han"},
    {"hira", "hiragana"},
    {"kana", "katakana"},
    {"khoj", "khojki"},
    {"kits", "khitansmallscript"},
    {"knda", "kannada"},
    {"laoo", "lao"},
    {"latn", "latin"},
    {"mymr", "myanmar"},
    {"zyyy", "common"},
}};

/// The characters other than letters that are alphabetic since Unicode 15 or 16: most are marks.
constexpr std::string_view new_alphabetic =
    R"(\x{363}-\x{36f}\x{897}\x{c04}\x{cf3}\x{f82}-\x{f83}\x{1dd3}-\x{1de6}\x{10d69}\x{10efc}\x{11080}-\x{11081}\x{11241}\x{113b8}-\x{113c0}\x{113c2}\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113cd}\x{11f00}-\x{11f01}\x{11f03}\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f40}\x{1611e}-\x{1612e}\x{1e08f})";
/// The characters other than lower-case letters that are lower case since Unicode 15 or 16.
constexpr std::string_view new_lowercase = R"(\x{10fc}\x{a7f2}-\x{a7f4}\x{ab69}\x{1e030}-\x{1e06d})";

/// Properties that differ between Unicode 14 and 16, for which there is no table.
constexpr std::string_view differing =
    " cased caseignorable changeswhencasefolded changeswhencasemapped changeswhenlowercased changeswhentitlecased "
    "changeswhenuppercased ci cwcf cwcm cwl cwt cwu dash dia diacritic ebase emojimodifierbase ext extender "
    "graphemebase graphemeextend graphemelink grbase grext grlink idc idcontinue ideo ideographic ids idsb "
    "idsbinaryoperator idstart inegyptianhieroglyphformatcontrols innoblock math oalpha ogrext oidc olower "
    "otheralphabetic othergraphemeextend otheridcontinue otherlowercase sd sentenceterminal softdotted sterm term "
    "terminalpunctuation uideo unifiedideograph unknown xidc xidcontinue xids xidstart zzzz ";

/// The long names of general categories, in lower case and without separators. [Unicode, PropertyValueAliases.txt]
constexpr std::array<PropertyEntry, 39> category_names{{
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"casedletter", "LC"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"spaceseparator", "Zs"},
}};

}  // namespace

std::string category_of(const std::string& name) {
  const auto found = std::ranges::find(category_names, name, &PropertyEntry::first);
  if (found != category_names.end()) return std::string(found->second);
  if (name == "lc") return "LC";
  if (name.empty() || name.size() > 2) return "";
  std::string category = name;
  category.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(category.front())));
  const auto is_it = [&](const auto& each) { return each.second == category; };
  return std::ranges::any_of(category_names, is_it) ? category : "";
}

std::string new_characters_of(std::string_view name) {
  const auto includes = [&](std::string_view category) {
    if (name == "w") return category.front() == 'L' || category.front() == 'M' || category == "Nd";
    if (name == "d") return category == "Nd";
    if (name == "LC") return category == "Lu" || category == "Ll";  // also Lt, which has no new characters
    if (name == "Cn") return true;                                  // they were unassigned
    return category.starts_with(name);
  };
  std::string all;
  for (const auto& [category, characters] : new_characters) {
    if (includes(category)) all += characters;
  }
  return all;
}

std::string new_characters_of_property(std::string_view name) {
  if (name == "alpha" || name == "alphabetic") return new_characters_of("L").append(new_alphabetic);
  if (name == "alnum") return new_characters_of_property("alpha") + new_characters_of("Nd");
  if (name == "lower" || name == "lowercase") return new_characters_of("Ll").append(new_lowercase);
  if (name == "upper" || name == "uppercase") return new_characters_of("Lu");
  if (name == "graph" || name == "print" || name == "assigned") return new_characters_of("Cn");
  if (name == "punct") return new_characters_of("P");
  const auto alias = std::ranges::find(script_aliases, name, &PropertyEntry::first);
  const auto found =
      std::ranges::find(new_in_scripts, alias == script_aliases.end() ? name : alias->second, &PropertyEntry::first);
  return std::string(found == new_in_scripts.end() ? "" : found->second);
}

bool differs_between_versions(std::string_view name) {
  return name.find('=') != std::string_view::npos ||
         differing.find(" " + std::string(name) + " ") != std::string_view::npos;
}

}  // namespace lyceum
