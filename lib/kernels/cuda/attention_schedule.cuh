#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// Which (head of a sequence, tile of rows) a block of a launch works on. Heads come in sections whose keys and values
/// fit into the L2 cache together. Within a section the tile with most work goes first in all heads, so that the last
/// blocks to run are short ones; or the last tile where blocks wait for those that start before them.
struct BlockOrder {
  std::int64_t heads, tiles;  // heads of all sequences; tiles of a head
  std::int64_t section;       // heads of a section
  bool last_tile_first;       // the last queries see most keys, the first keys are seen by most queries

  struct Block {
    int head, tile;
  };
  LYCEUM_HOST_DEVICE std::int64_t blocks() const { return heads * tiles; }
  LYCEUM_HOST_DEVICE Block at(std::int64_t index) const {
    const std::int64_t first = index / (section * tiles) * section;
    const std::int64_t here = heads - first < section ? heads - first : section;
    const std::int64_t rest = index - first * tiles, rank = rest / here;
    return {static_cast<int>(first + rest % here), static_cast<int>(last_tile_first ? tiles - 1 - rank : rank)};
  }
};

/// Causal order between the queries of a sequence and its keys, of which the last `queries` are the queries' own, and
/// between those of one document where the sequence is made of several.
struct CausalOrder {
  int queries, keys;
  const std::int32_t* first_keys;  // of the sequence's queries, see FirstKeys; null: 0 for all
  /// Keys [first_key(query), seen(query)) influence the query. Also for rows that pad the last tile.
  LYCEUM_HOST_DEVICE int first_key(int query) const {
    return first_keys ? first_keys[query < queries ? query : queries - 1] : 0;
  }
  LYCEUM_HOST_DEVICE int seen(int query) const { return keys - queries + query + 1; }
  /// The first tile of `tile` keys that the queries from `first` on see something of.
  LYCEUM_HOST_DEVICE int first_tile(int first, int tile) const { return first_key(first) / tile; }
  /// The end of the tiles of `tile` keys that the queries [first, first + rows) see something of.
  LYCEUM_HOST_DEVICE int end_tile(int first, int rows, int tile) const {
    const int last = (first + rows < queries ? first + rows : queries) - 1;
    return (seen(last) + tile - 1) / tile;
  }
  /// The first query that sees a key at or after `key`.
  LYCEUM_HOST_DEVICE int first_query(int key) const {
    const int query = key - (keys - queries);
    return query < 0 ? 0 : query;
  }
  /// The end of the queries whose documents begin at `key` or before: no later one sees it.
  LYCEUM_HOST_DEVICE int end_query(int key) const {
    if (!first_keys) return queries;
    int low = 0, high = queries;
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (first_keys[middle] > key) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  /// Whether some query at or after `query` does not see some of the keys before `end`, which come after it.
  LYCEUM_HOST_DEVICE bool crosses(int query, int end) const { return end > seen(query); }
  /// Whether some query before `end` does not see `key`, of a document before its own.
  LYCEUM_HOST_DEVICE bool hides(int end, int key) const { return first_key(end - 1) > key; }
};

}  // namespace lyceum::cuda
