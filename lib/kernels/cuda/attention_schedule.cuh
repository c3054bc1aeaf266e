#pragma once

#include <cstdint>

#include "kernels/cuda/host_device.h"

namespace lyceum::cuda {

/// Maps a block index of a launch to a head of a sequence and a tile of rows. Heads are grouped into sections whose
/// keys and values fit into the L2 cache together. Within a section, the tile with the most work comes first for all
/// heads, so that the last blocks to run are short. If blocks wait for other blocks, those with the last tile must come
/// first, see later_keys_first().
struct BlockOrder {
  std::int64_t heads, tiles;  // over all sequences; per head
  std::int64_t section;       // heads per section
  bool last_tile_first;       // the last queries see the most keys; the first keys are seen by the most queries

  /// A head, counting those of all sequences, and a tile of its rows.
  struct Block {
    int head, tile;
  };
  /// Number of thread blocks, and the work of the one with index `index`.
  LYCEUM_HOST_DEVICE std::int64_t blocks() const { return heads * tiles; }
  LYCEUM_HOST_DEVICE Block at(std::int64_t index) const {
    const std::int64_t first = index / (section * tiles) * section;
    const std::int64_t here = heads - first < section ? heads - first : section;
    const std::int64_t rest = index - first * tiles, rank = rest / here;
    return {static_cast<int>(first + rest % here), static_cast<int>(last_tile_first ? tiles - 1 - rank : rank)};
  }
};

/// Causal order between the queries of a sequence and its keys: the queries are the last `queries` of `keys` positions.
/// If the sequence consists of several documents, a query sees only keys of the same document. With a window, it sees
/// only the last `window` of its keys.
struct CausalOrder {
  int queries, keys;
  const std::int32_t* first_keys;  // [queries] of this sequence, see FirstKeys; null: 0 for all
  int window = 0;                  // less than `keys`; 0: no window
  /// The query sees keys [first_key(query), seen(query)). Both also accept rows that pad the last tile. first_key()
  /// never descends within a sequence.
  LYCEUM_HOST_DEVICE int first_key(int query) const {
    const int row = query < queries ? query : queries - 1;
    const int document = first_keys ? first_keys[row] : 0;
    if (window == 0) return document;
    const int begin = seen(row) - window;
    return begin > document ? begin : document;
  }
  LYCEUM_HOST_DEVICE int seen(int query) const { return keys - queries + query + 1; }
  /// Index of the first tile, of `tile` keys, that any query from `first` on sees part of.
  LYCEUM_HOST_DEVICE int first_tile(int first, int tile) const { return first_key(first) / tile; }
  /// End index of the tiles of `tile` keys that any of the queries [first, first + rows) sees part of.
  LYCEUM_HOST_DEVICE int end_tile(int first, int rows, int tile) const {
    const int last = (first + rows < queries ? first + rows : queries) - 1;
    return (seen(last) + tile - 1) / tile;
  }
  /// The first query that is not earlier than `key`.
  LYCEUM_HOST_DEVICE int first_query(int key) const {
    const int query = key - (keys - queries);
    return query < 0 ? 0 : query;
  }
  /// End of the queries that may see `key`: documents or windows of later queries begin after it.
  LYCEUM_HOST_DEVICE int end_query(int key) const {
    int low = 0, high = window == 0 ? queries : end_of_windows(key);
    if (!first_keys) return high;
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
  /// True if some key before `end` is later than some query at or after `query`, so that a causal mask is needed.
  LYCEUM_HOST_DEVICE bool crosses(int query, int end) const { return end > seen(query); }
  /// True if `key` is before the document or the window of some query before `end`, so that a mask of early keys is
  /// needed.
  LYCEUM_HOST_DEVICE bool hides(int end, int key) const { return first_key(end - 1) > key; }

 private:
  /// End of the queries whose window contains `key` or a later key.
  LYCEUM_HOST_DEVICE int end_of_windows(int key) const {
    const int ahead = window - (keys - queries);  // query key + ahead − 1 is the last one whose window contains `key`
    if (key >= queries - ahead) return queries;
    return key + ahead > 0 ? key + ahead : 0;
  }
};

}  // namespace lyceum::cuda
