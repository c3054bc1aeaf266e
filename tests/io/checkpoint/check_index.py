"""check_index.py INDEX EXPECTED: INDEX must have exactly the tensors of EXPECTED.txt, with the bits of EXPECTED.f32."""
import sys

import h5py
import numpy

index, expected = sys.argv[1:]
bits = numpy.fromfile(expected + ".f32", dtype=numpy.uint32)
names = set()
with h5py.File(index, "r") as file:
    for line in open(expected + ".txt"):
        name, *shape = line.split()
        shape = tuple(map(int, shape))
        count = int(numpy.prod(shape))
        data = file["/" + name]
        assert data.shape == shape and data.dtype == numpy.float32, (name, data.shape, data.dtype)
        seen = data[...].reshape(-1).view(numpy.uint32)
        assert (seen == bits[:count]).all(), name
        part = (slice(1, None),) + (slice(0, 2),) * (len(shape) - 1)
        assert (data[part].view(numpy.uint32) == bits[:count].reshape(shape)[part]).all(), name
        bits = bits[count:]
        names.add(name)
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    assert set(found) == names, set(found) ^ names
    attributes = dict(file.attrs)
    assert attributes["format"] == "lyceum-checkpoint" and attributes["format_version"] == 3, attributes
    assert attributes["run_uuid"] == "0c5f" and attributes["step"] == 12, attributes
    assert attributes["config"] == "[run]\nseed = 1\n", attributes
assert names and not len(bits)
