#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/files/hdf5.h"
#include "io/routing/log.h"

namespace lyceum {

/// The value of the attribute `format` of a routing log.
constexpr const char* routing_format_name = "lyceum.routing";

/// The dataset of all moves, i64 [moves, move_columns]: the members of ExpertMove, in order.
constexpr const char* moves_name = "/moves";
constexpr std::int64_t move_columns = 5;

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

/// A dataset of ReplicaCounts in the group of a router: i64 [records, experts] or, for one number per record,
/// [records]. The group has all of them or none.
template <class Member>
struct ReplicaDataset {
  const char* name;  // "/replicas": the path in the group
  const char* units;
  Member ReplicaCounts::*member;
};
inline constexpr std::array replica_vectors{
    ReplicaDataset<std::vector<std::int64_t>>{"/replicas", "replicas", &ReplicaCounts::replicas},
    ReplicaDataset<std::vector<std::int64_t>>{"/replica_tokens", "tokens", &ReplicaCounts::tokens}};
inline constexpr std::array replica_numbers{
    ReplicaDataset<std::int64_t>{"/replicas_kept", "replicas", &ReplicaCounts::kept},
    ReplicaDataset<std::int64_t>{"/replicas_sent", "replicas", &ReplicaCounts::sent},
    ReplicaDataset<std::int64_t>{"/replica_bytes", "bytes", &ReplicaCounts::bytes}};

/// Writes the attributes and datasets of a log without records into a new file.
void create_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin);

/// The numbers of records and moves of a log.
struct LogSize {
  std::int64_t records, moves;
};
/// Converts a log that an older version has written, or whose experts have another placement, to these layers and this
/// origin: sets the attributes, truncates the log to `size` records and moves, and adds missing datasets, whose old
/// records are unknown (NaN).
void revise_datasets(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers, const RoutingLog::Origin& origin,
                     const LogSize& size);

/// Sets the attributes with the ranks of the experts.
void set_placements(hdf5::File& file, const std::vector<RoutingLog::Layer>& layers);
/// Appends moves to the dataset `moves_name`, and creates it if necessary.
void append_moves(hdf5::File& file, std::span<const ExpertMove> moves);

/// Appends a record to all datasets. Creates those of replicas if the record is the first one with replicas.
void append_record(hdf5::File& file, std::int64_t step, const std::vector<RoutingLog::Layer>& layers,
                   std::span<const LayerRouting> record);

}  // namespace lyceum
