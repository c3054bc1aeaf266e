#pragma once

#include <boost/program_options.hpp>

#include "io/config/config.h"
#include "io/config/setting.h"

namespace lyceum {

/// Adds every key of `config`, section by section; `config` must outlive the options.
void bind(boost::program_options::options_description& options, Config& config);

/// The Setting of a key that `bind` added.
const Setting& setting_of(const boost::program_options::option_description& key);

}  // namespace lyceum
