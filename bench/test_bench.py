"""What of the benches can be tested without torch and a GPU: python3 -m unittest discover -s bench"""

import argparse
import contextlib
import io
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import common
import gemm
import grouped
import litmus
import memory
import plot


def rows_like(ratio, shape, config="", condition="rested", triton=2.0):
    """A line as gemm.py writes it: cuBLAS takes 1 ms."""
    peers = {"torch": {"ms": 1.0, "rounds": [1.0]}, "triton": {"ms": triton, "rounds": [triton]}}
    return {
        "set": "issue", "shape": shape, "dtype": "f16", "condition": condition, "config": config, "ms": 1 / ratio, "tflops": 700.0, "base": "torch",
        "peers": peers,
    }  # fmt: skip


class Plot(unittest.TestCase):
    rows = [
        rows_like(1.04, [4096, 4096, 4096]),
        rows_like(1.02, [4096, 4096, 4096], condition="sustained"),
        rows_like(1.10, [4096, 4096, 4096], "bn=192", "sustained"),
        rows_like(0.90, [16, 4096, 4096]),
        rows_like(1.00, [4096, 4096, 4096], "bn=192"),
    ]

    def test_the_fastest_under_the_first_condition_is_taken_for_all(self):
        values = plot.values_by_series(plot.by_shape(self.rows), "condition", "rested", None)
        self.assertEqual(list(values), ["rested", "sustained"])
        self.assertAlmostEqual(values["rested"][4096, 4096, 4096], 1.04)
        self.assertAlmostEqual(values["sustained"][4096, 4096, 4096], 1.02)

    def test_peers_are_compared_with_cublas_too(self):
        values = plot.values_by_series(plot.by_shape(self.rows), "peer", "rested", None)
        self.assertEqual(list(values), ["ours", "triton"])
        self.assertAlmostEqual(values["triton"][16, 4096, 4096], 0.5)

    def test_a_picture_is_xml_with_a_point_for_each_value_and_does_not_change(self):
        rows = [*self.rows, rows_like(1.01, [16, 8192, 8192])]
        values = plot.values_by_series(plot.by_shape(rows), "condition", "rested", None)
        picture = plot.svg(values, "f16 & H200", "time over ours")
        root = xml.etree.ElementTree.fromstring(picture)
        titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
        self.assertEqual(titles[0], "f16 & H200")
        self.assertIn("16×4096×4096, rested: 0.900", titles)
        self.assertEqual(len(titles), 1 + 4)
        self.assertIn("m = 4096", picture)
        self.assertEqual(picture, plot.svg(values, "f16 & H200", "time over ours"))

    def test_a_table_has_means_of_all_and_of_large_shapes(self):
        lines = plot.table(plot.by_shape(self.rows), None).splitlines()
        self.assertEqual(len(lines), 2 + 2 + 2 + 1)
        self.assertIn("| 0.9615 | 700 | 1.040 |", lines[2])
        self.assertIn("**0.967**", lines[4])
        self.assertIn("**1.040**", lines[5])
        self.assertEqual({line.count("|") for line in lines}, {9})


class Gemm(unittest.TestCase):
    def test_the_issue_has_its_shapes_and_random_ones_stay_the_same(self):
        shapes = gemm.SETS["issue"][0]
        self.assertEqual(len(shapes), 34)
        self.assertEqual(len(set(shapes)), 34)
        drawn = gemm.SETS["random"][0]
        self.assertEqual(len(drawn), 20)
        self.assertEqual(drawn[0], (7432, 12144, 12304))
        self.assertTrue(all(size % 8 == 0 and 8 <= size <= 20000 for shape in drawn for size in shape))

    def test_a_plan_has_configurations_by_shape(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("# comment\n4096,4096,4096: bn=192 stages=4; overlap_epilogue=true\n16,4096,4096  swap=true # small\n4096,4096,4096\n")
            file.flush()
            plan = gemm.planned(file.name)
        self.assertEqual(plan[4096, 4096, 4096], ["bn=192 stages=4", "overlap_epilogue=true", ""])
        self.assertEqual(plan[16, 4096, 4096], ["swap=true"])

    def test_a_configuration_may_name_several_kernels(self):
        self.assertEqual(
            common.kernels_of("split=4 bn=128 + add_partials parts=4", "gemm_hopper"),
            [("gemm_hopper", ["split=4", "bn=128"]), ("add_partials", ["parts=4"])],
        )
        with self.assertRaises(SystemExit):
            common.kernels_of("one two", "gemm_hopper")

    def test_launches_come_as_one_kernel_or_several(self):
        self.assertEqual(common.sequence_of({"kernel": "x"}), [{"kernel": "x"}])
        self.assertEqual(common.sequence_of({"launches": [{"kernel": "x"}, {"kernel": "y"}]}), [{"kernel": "x"}, {"kernel": "y"}])

    def test_kept_launches_are_found_again_and_errors_are_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "tilewright")
            program.write_text(PROGRAM)
            program.chmod(0o755)
            job = {"operator": "gemm_hopper", "words": ["dtype=bf16"], "config": "bn=64", "sizes": {"m": 16, "n": 32, "k": 64}}
            args = argparse.Namespace(bin=str(program), launches=None, emit_launches=str(pathlib.Path(folder, "kept")), ptxas=None)
            made = common.launches_of([job, job | {"config": "wrong=1"}, job | {"sizes": {"batch": 2, "m": 16, "n": 32, "k": 64}}], args)
            self.assertEqual(made[0], [{"asked": ["-p", "dtype=bf16", "-p", "bn=64", "--step", "1"], "sizes": ["m=16", "n=32", "k=64"]}])
            self.assertEqual(made[1], "no parameter `wrong`")
            self.assertIn("none for batches", made[2])
            kept = argparse.Namespace(bin="absent", launches=args.emit_launches, emit_launches=None, ptxas=None)
            self.assertEqual(common.launches_of([job], kept), made[:1])

    def test_names_of_tensors_have_aliases(self):
        self.assertIn("scale_a", common.aliases("sa"))
        self.assertEqual(common.scalar_of("alpha", {"alpha": 2}), 2.0)
        with self.assertRaises(RuntimeError):
            common.scalar_of("gamma", {"alpha": 2})

    def test_a_summary_names_the_least(self):
        text = common.summary({(4096, 4096, 4096): 1.21, (16, 64, 64): 1.0})
        self.assertEqual(text, "geometric mean 1.100 over 2, 1.210 over the 1 with m >= 1024; least 1.000 at 16x64x64")


class Grouped(unittest.TestCase):
    def test_groups_begin_with_tiles_or_where_the_last_ended(self):
        self.assertEqual(grouped.tiling("bm=64", [5, 0, 70]), (64, [0, 64, 64], 192, [(0, 0), (2, 64), (2, 128)]))
        self.assertEqual(grouped.tiling("batch=ragged", [5, 0, 140]), (128, [0, 5, 5], 145, [(0, 0), (2, 5), (2, 133)]))
        self.assertEqual(grouped.tiling("swap=true bn=16", [5, 20])[1:], ([0, 16], 48, [(0, 0), (1, 16), (1, 32)]))

    def test_a_job_has_the_sizes_of_its_program(self):
        args = argparse.Namespace(even=True, dtype="bf16")
        self.assertEqual(grouped.job_of((2, 130, 8, 16), "", args)["sizes"], {"m": 512, "n": 8, "k": 16, "g": 2})
        self.assertEqual(grouped.job_of((2, 130, 8, 16), "batch=ragged", args)["sizes"], {"m": 260, "n": 8, "k": 16, "g": 2, "t": 4})


class Memory(unittest.TestCase):
    def test_a_copy_moves_as_many_bytes_as_the_case(self):
        for operator, (_, shapes, _) in memory.OPERATORS.items():
            for shape in shapes:
                sizes, elements = memory.copy_of(operator, shape), memory.traffic(operator, shape)
                self.assertLess(abs(2 * sizes["m"] * sizes["n"] - elements), 2 * sizes["n"], (operator, shape))

    def test_a_table_has_a_line_for_each_case_of_ours(self):
        row = {"impl": "ours", "operator": "softmax", "shape": [2, 3], "ms": 0.0125, "gbps": 1234.5, "of_copy": 0.9}
        lines = memory.table([row | {"impl": "copy"}, row]).splitlines()
        self.assertEqual(lines[2:], ["| softmax | 2×3 | 12.5 | 1234 | 0.900 |  |  |"])

    def test_aims_are_counted_by_size(self):
        row = {"impl": "ours", "operator": "x", "shape": [1], "of_copy": 0.9, "of_best_peer": 1.1}
        with contextlib.redirect_stdout(io.StringIO()) as said:
            memory.conclude([row | {"bytes": 1 << 30}, row | {"bytes": 1 << 20}])
        self.assertIn("1 below 0.95: x 1 0.900", said.getvalue())
        self.assertIn("0 below 0.98: none", said.getvalue())


class Litmus(unittest.TestCase):
    def test_variants_leave_out_what_they_name_and_equal_texts_are_one(self):
        ptx = "fence.proxy.async.shared::cta;\nfence.proxy.async.global;\ncp.async.bulk.wait_group 1;\ncp.async.bulk.wait_group.read 0;"
        texts = litmus.variants_of(ptx)
        self.assertEqual(list(texts), ["as emitted", *litmus.VARIANTS])
        self.assertNotIn("shared::cta", texts["no shared fence"])
        self.assertIn("async.global", texts["no shared fence"])
        self.assertNotIn("fence", texts["no fence"])
        self.assertEqual(texts["waits for reads"].count(".read"), 2)
        self.assertEqual(list(litmus.variants_of("ret;")), ["as emitted"])

    def test_fences_are_counted_by_kind(self):
        counted = litmus.fences_of("fence.proxy.async.global; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;")
        self.assertEqual(counted, {"cp.async.bulk.wait_group": 1, "cp.async.bulk.wait_group.read": 1, "fence.proxy.async.global": 1})


# Stands in for the binary: prints a program that repeats what was asked for, and a launch that repeats that.
PROGRAM = """#!/usr/bin/env python3
import json, sys
given = sys.argv[1:]
if given[0] == "kernels":
    if "wrong=1" in given:
        sys.exit("no parameter `wrong`")
    print("// " + json.dumps(given[2:]) + chr(10) + "size m = 1, n = 1, k = 1")
else:
    print(json.dumps({"asked": json.loads(sys.stdin.readline()[3:]), "sizes": [word for word in given if "=" in word]}))
"""

if __name__ == "__main__":
    unittest.main()
