#pragma once

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>

#include <sstream>
#include <string>

namespace lyceum {

/// A page as XML: throws when a tag is left open or a character is not escaped.
inline boost::property_tree::ptree parsed_xml(const std::string& page) {
  std::istringstream in(page);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(in, tree);
  return tree;
}

}  // namespace lyceum
