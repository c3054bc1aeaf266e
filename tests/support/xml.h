#pragma once

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>

#include <sstream>
#include <string>

namespace lyceum {

/// Parses a page as XML. Throws if a tag is not closed or a character is not escaped.
inline boost::property_tree::ptree parsed_xml(const std::string& page) {
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(in, tree);
  return tree;
}

}  // namespace lyceum
