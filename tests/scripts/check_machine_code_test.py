"""Tests scripts/check_machine_code.py with output of the disassembler, for kernels with and without problems."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_machine_code  # noqa: E402


def problems(name, lines, stack=0):
    """Returns the problems of a kernel with these instructions."""
    code = "\n".join(f"        /*{16 * i:04x}*/                   {line} ;   /* 0x0000000000000000 */" for i, line in enumerate(lines))
    usage = f" Function {name}:\n  REG:168 STACK:{stack} SHARED:0"
    (kernel,) = check_machine_code.kernels_of(f"\t\tFunction : {name}\n{code}\n", usage)
    return check_machine_code.problems_of(kernel)


ARRIVE, WAIT, EXIT = "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE gsb0, 0x1", "EXIT"
PRODUCT, LAST = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24", "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0"
GROUP = [ARRIVE, PRODUCT, PRODUCT, LAST]
EXPONENTIALS = ["MUFU.EX2 R9, R9"] * 66


class MachineCode(unittest.TestCase):
    def test_products_of_a_group_are_together(self):
        self.assertEqual(problems("k", [*GROUP, WAIT, *GROUP, WAIT, EXIT]), [])
        self.assertIn("one by one", problems("k", [ARRIVE, LAST, WAIT, ARRIVE, LAST, WAIT, EXIT])[0])

    def test_values_stay_in_registers(self):
        self.assertEqual(problems("k", [*GROUP, WAIT], stack=8), ["8 bytes of a thread's values are in memory, not in registers"])
        self.assertEqual(problems("k", ["FADD R1, R2, R3", EXIT], stack=8), [], "no kernel of the tensor cores")

    def test_exponentials_run_beside_products(self):
        self.assertEqual(problems("HopperForward", [*GROUP, *GROUP, WAIT, *EXPONENTIALS, WAIT, EXIT]), [])
        self.assertIn("exponentials", problems("HopperForward", [*GROUP, *GROUP, WAIT, WAIT, *EXPONENTIALS, EXIT])[0])

    def test_clusters_wait_for_memory_at_their_barriers_only(self):
        barrier, arrival = ["MEMBAR.ALL.GPU", "UCGABAR_ARV", "UCGABAR_WAIT"], "SYNCS.ARRIVE.TRANS64.RED.A1T0 RZ, [R7+URZ], RZ"
        self.assertEqual(problems("k", [*barrier, *GROUP, arrival, *barrier, EXIT]), [])
        self.assertIn("outside", problems("k", [*barrier, *GROUP, "MEMBAR.ALL.GPU", arrival, *barrier, EXIT])[0])
        self.assertEqual(problems("k", [*GROUP, "MEMBAR.ALL.GPU", EXIT]), [], "no clusters")

    def test_warpgroups_use_the_registers_that_they_asked_for(self):
        def code(consumer, producer, alloc="0xf0", dealloc="0x18"):
            return ["@P0 BRA 0x80", f"USETMAXREG.TRY_ALLOC.CTAPOOL UP0, {alloc}", *GROUP, f"FADD R{consumer}, R1, R2", EXIT,
                    f"USETMAXREG.DEALLOC.CTAPOOL {dealloc}", f"IADD3 R{producer}, R1, R2, RZ", EXIT]
        self.assertEqual(problems("k", code(239, 23)), [])
        self.assertEqual(problems("k", code(240, 23)), ["consumers use R240, but have 240 registers"])
        self.assertEqual(problems("k", code(239, 24)), ["producers use R24, but have 24 registers"])
        self.assertEqual(problems("k", code(9, 9, "0xf8", "0x28")), ["its warpgroups request 68608 registers, but its block starts with 64512"])


if __name__ == "__main__":
    unittest.main()
