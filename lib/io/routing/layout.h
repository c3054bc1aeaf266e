#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "io/files/hdf5.h"
#include "io/routing/log.h"

namespace lyceum {

/// The value of the attribute `format` of a routing log.
constexpr const char* routing_format_name = "lyceum.routing";

/// A dataset with one f32 number per record, in the group of a router.
struct RecordNumber {
  const char* name;  // "/mean_entropy": the path in the group
  const char* units;
  float (*of)(const LayerRouting&);
};
inline constexpr std::array record_numbers{
    RecordNumber{"/mean_entropy", "nat", [](const LayerRouting& r) { return r.mean_entropy; }},
    RecordNumber{"/step_max_vio_mean", "1", [](const LayerRouting& r) { return r.steps.max_vio_mean; }},
    RecordNumber{"/step_max_vio_max", "1", [](const LayerRouting& r) { return r.steps.max_vio_max; }},
    RecordNumber{"/step_idle_mean", "experts", [](const LayerRouting& r) { return r.steps.idle_mean; }},
    RecordNumber{"/step_idle_max", "experts", [](const LayerRouting& r) { return r.steps.idle_max; }}};

/// Writes the attributes and datasets of a log without records into a new file.
void create_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin);

/// Makes the log of an older version or another placement one of these layers and this origin: sets the attributes,
/// removes the records from number `records` on, and adds missing datasets, whose old records are unknown (NaN).
void revise_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin,
                     std::int64_t records);

/// Appends a record to all datasets.
void append_record(hdf5::File& file, std::int64_t step, std::span<const LayerRouting> layers);

}  // namespace lyceum
