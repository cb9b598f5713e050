"""What of the benches can be tested without torch and a GPU: python3 -m unittest discover -s bench"""

import argparse
import contextlib
import ctypes
import io
import pathlib
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

import common
import contraction
import gemm
import grouped
import moe
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


    def test_types_of_a_set_have_their_words(self):
        def jobs(*words):
            with unittest.mock.patch("sys.argv", ["gemm.py", *words]):
                todo, missing = gemm.work(gemm.arguments())
            self.assertEqual(missing, 0)
            return [job for _, each in todo for job in each]

        for name in ("u1", "i4"):
            job = jobs("--set", "int4", "--dtype", name, "--shapes", "128,256,512")[0]
            self.assertEqual((job["operator"], job["arch"]), ("gemm", "sm_80"))
            self.assertEqual(job["words"], [f"dtype={name}", *gemm.WORDS[name]])
        self.assertEqual(jobs("--set", "int4")[0]["words"][0], "dtype=i4")
        self.assertEqual(jobs("--set", "sparse")[0]["words"], ["sparse=true"])
        self.assertEqual(len(jobs("--set", "sparse", "--dtype", "e4m3")), 12)
        self.assertEqual(jobs("--set", "pointers", "--dtype", "bf16")[1]["sizes"], {"batch": 64, "m": 512, "n": 512, "k": 1024})
        self.assertEqual(jobs("--set", "fp8-rows")[0]["words"], ["dtype=e4m3", "epilogue=row_scale+col_scale"])
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            jobs("--set", "int4", "--dtype", "f16")
        self.assertIn("`f16` is none of the set's, i4, u4, u1", said.getvalue())

    def test_clusters_are_varied_and_nothing_else(self):
        self.assertEqual(gemm.varied("bn=192 cluster=n2 stages=3", ["cluster=m2", "cluster=m2n2"]), ["bn=192 stages=3 cluster=m2", "bn=192 stages=3 cluster=m2n2"])
        self.assertEqual(gemm.varied("split=4 + add_partials parts=4", ["cluster=n2"]), ["split=4 cluster=n2 + add_partials parts=4"])
        self.assertEqual(gemm.varied("", ["cluster=none"]), ["cluster=none"])
        self.assertEqual(gemm.varied("sm_count=128 bn=192", ["cluster=m2", "cluster=m2n2 sm_count=120"]), ["bn=192 cluster=m2", "bn=192 cluster=m2n2 sm_count=120"])
        self.assertEqual(gemm.varied("bn=192", []), ["bn=192"])
        self.assertEqual(len(set(gemm.SETS["cluster2d"][0])), 12)

    def test_a_contest_is_with_the_fastest_of_the_base_at_each_shape(self):
        times = [("cluster=m2", 2.0, 3.0), ("bn=192 cluster=n2", 4.0, 1.0), ("cluster=m2n2 sm_count=120", 1.0, 2.0), ("cluster=none", 4.0, 4.0)]
        rows = [rows_like(1 / ms, [size] * 3, config) for config, *each in times for size, ms in zip((4096, 8192), each)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            gemm.contest(rows, ["rested"], *gemm.CONTESTS["cluster2d"])
        lines = said.getvalue().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertIn("cluster=none beside the fastest of cluster=m2, cluster=n2: geometric mean 0.354", lines[0])
        self.assertIn("cluster=m2n2 sm_count=120 beside the fastest of cluster=m2, cluster=n2: geometric mean 1.000 over 2; least 0.500 at 8192x8192x8192", lines[1])


class Arrays(unittest.TestCase):
    """Kernels with arrays of tensors, with stand-ins for torch and the driver."""

    def test_tables_hold_addresses_and_maps_in_order(self):
        launch = {
            "kernel": "k", "shared_bytes": 0, "grid": [1, 1, 1], "threads": 128, "cluster": 1,
            "params": [
                {"kind": "tensors", "name": "a"}, {"kind": "tensor", "name": "bias"},
                {"kind": "maps", "name": "a_map", "of": 0, **MAP}, {"kind": "map", "name": "bias_map", "of": 1, **MAP},
            ],
        }  # fmt: skip
        places = [0x7F0000000100, 0x7F0000000040, 0x7F00FFFFFF80]
        with stand_ins():
            kernel = common.Kernel(launch, None, {"a": [Tensor(at) for at in places], "bias": Tensor(0x500)}, {})
        words = [ctypes.c_uint64.from_address(argument).value for argument in kernel.arguments]
        self.assertEqual(list((ctypes.c_uint64 * 3).from_address(words[0])), places)
        self.assertEqual(words[1], 0x500)
        maps = ctypes.string_at(words[2], 3 * common.MAP_BYTES)
        self.assertEqual([int.from_bytes(maps[at : at + 8], "little") for at in range(0, len(maps), common.MAP_BYTES)], places)
        # A single map is the parameter itself.
        self.assertEqual(words[3], 0x500)

    def test_an_array_has_as_many_tensors_as_its_mode(self):
        param = {"kind": "tensors", "name": "a", "dtype": "f16", "tensors": 3, "shape": [2, 4], "strides": [4, 1]}
        with self.assertRaisesRegex(RuntimeError, "`a` has 2 tensors here and 3 for the kernel"):
            common.given_to(param, [None, None], "a")

    def test_packed_tensors_are_row_major_and_of_the_kernels_shape(self):
        param = {"kind": "tensor", "name": "meta", "dtype": "u2", "shape": [4, 8], "strides": [1, 4]}
        with stand_ins(), self.assertRaisesRegex(RuntimeError, "`meta` is no row-major tensor, which those of u2 are here"):
            common.empty_for(param)
        with self.assertRaisesRegex(RuntimeError, r"`meta` is \[4, 6\] here and \[4, 8\] for the kernel"):
            common.given_to(param, common.Shaped(lambda shape: types.SimpleNamespace(shape=(4, shape[1] - 2))), "meta")


# What a tensor map is made of, besides its tensor.
MAP = {"type": 6, "extents": [8, 8], "strides": [16], "box": [8, 8], "steps": [1, 1], "swizzle": 0, "promotion": 2}


class Tensor:
    """Stands in for a tensor: an address, or bytes that are kept."""

    def __init__(self, at, data=None):
        self.at, self.data = at, data

    def data_ptr(self):
        return self.at

    def to(self, _):
        return self


class Map:
    """Stands in for the driver's tensor map: 128 bytes that begin with the tensor's address."""

    def __init__(self, at):
        self.data = ctypes.create_string_buffer(at.to_bytes(8, "little"), common.MAP_BYTES)

    def getPtr(self):
        return ctypes.addressof(self.data)


def stand_ins():
    """Modules in place of torch and of the driver's bindings."""
    driver, torch = unittest.mock.MagicMock(), unittest.mock.MagicMock()
    driver.cuFuncSetAttribute.return_value = (0,)
    driver.cuFuncGetAttribute.return_value = driver.cuModuleGetFunction.return_value = (0, 0)
    driver.cuTensorMapEncodeTiled.side_effect = lambda _type, _rank, at, *_rest: (0, Map(at))
    torch.frombuffer = lambda data, dtype: Tensor(ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data)), data)
    bindings = types.SimpleNamespace(driver=driver)
    return unittest.mock.patch.dict("sys.modules", {"torch": torch, "cuda": types.SimpleNamespace(bindings=bindings), "cuda.bindings": bindings})


class Contraction(unittest.TestCase):
    def test_every_case_has_sizes_of_its_indices(self):
        self.assertEqual(len(contraction.CASES), 34)
        for _, einsum, sizes in contraction.CASES:
            self.assertEqual(set(einsum) - set(",->"), set(sizes), einsum)

    def test_interleaved_results_are_no_matrix(self):
        for einsum in [einsum for family, einsum, _ in contraction.CASES if family == "interleaved"] + ["cadg,bfge->fedcba"]:
            a, _, c = einsum.replace("->", ",").split(",")
            self.assertGreater(len([1 for x, y in zip(c, c[1:]) if (x in a) != (y in a)]), 1, einsum)


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

class Experts(unittest.TestCase):
    """What bench/moe.py asks for and takes apart."""

    def test_other_parameters_keep_what_is_computed(self):
        launch = {"operator": "gemm_hopper", "parameters": {"dtype": "bf16", "gather": "true", "bn": "8", "stages": "9"}, "sizes": {"m": 4}}
        self.assertEqual(moe.replaced(launch, ""), launch)
        self.assertEqual(moe.replaced(launch, "bn=16")["parameters"], {"dtype": "bf16", "gather": "true", "bn": "16"})

    def test_parts_begin_at_products(self):
        launches = [{"kernel": name} for name in ("moe_sort", "gemm_fp8_blocks", "moe_quantise", "gemm_fp8_blocks", "moe_combine")]
        parts = moe.parts_of(launches)
        self.assertEqual([len(parts[part]) for part in moe.PARTS], [2, 1, 5])
        launches = [{"kernel": name} for name in ("moe_sort", "moe_gather", "gemm_weights", "moe_gate", "gemm_weights", "moe_combine")]
        self.assertEqual([len(moe.parts_of(launches)[part]) for part in moe.PARTS], [3, 1, 6])

    def test_parameters_have_the_names_of_the_layer(self):
        launch = {"params": [{"kind": "tensor", "name": "a"}, {"kind": "size", "name": "m"}, {"kind": "tensor", "name": "rows"}]}
        self.assertEqual([param["name"] for param in moe.named([launch], {"a": "x"})[0]["params"]], ["x", "m", "rows"])
        self.assertEqual(launch["params"][0]["name"], "a")


if __name__ == "__main__":
    unittest.main()
