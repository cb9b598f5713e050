"""The algebra of layouts: the calculator's answers as Python's objects."""

import pytest

import tilewright
from tilewright import _core
from tilewright import layout as tl
from tilewright.layout import Layout


def test_layouts_read_and_print():
    a = Layout("((2,2),(4,2)):((1,8),(2,16))")
    assert str(a) == "((2,2),(4,2)):((1,8),(2,16))"
    assert a == Layout(((2, 2), (4, 2)), ((1, 8), (2, 16)))
    assert (a.kind, a.shape, a.stride, len(a)) == ("layout", ((2, 2), (4, 2)), ((1, 8), (2, 16)), 2)
    assert Layout((4, 8)) == Layout("(4,8):(1,4)") and Layout(4, 2) == Layout("4:2")
    assert {Layout("4:1"): 1}[Layout(4, 1)] == 1


def test_values_and_slices():
    a = Layout("((2,2),(4,2)):((1,8),(2,16))")
    assert a(22) == 26 and a((1, 0), (0, 0)) == 1
    assert str(Layout("((3,2),((2,3),2)):((4,1),((2,15),100))")(2, ((0, None), None))) == "{8} o (3,2):(15,100)"


def test_operations():
    a = Layout("(8,8):(8,1)")
    assert str(a @ "((4,8),2):((16,1),8)") == "((4,8),2):((2,8),1)"
    assert str(tl.zipped_divide("(8,16):(1,8)", [4, 8])) == "((4,8),(2,2)):((1,8),(4,64))"
    assert tl.right_inverse("(4,8):(8,1)") == Layout("(8,4):(4,1)")
    assert tl.complement("4:1", 24) == Layout("6:4")
    assert tl.logical_product("4:1", "6:1") == Layout("(4,6):(1,4)")
    assert tl.size(a) == 64 and tl.bijective(a) is True and tl.image("3:5") == (0, 5, 10)


def test_swizzles_and_linear_layouts():
    swizzled = Layout("Sw<3,3,3> o (64,64):(64,1)")
    assert swizzled.kind == "swizzled_layout" and swizzled(1, 0) == 72
    linear = Layout("[register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]")
    assert linear.kind == "linear_layout"
    assert str(linear({"lane": 1, "register": 2})) == "[x:2, y:1]"
    assert tl.to_linear("(4,8):(8,1)").kind == "linear_layout"
    found = tl.optimal_swizzle(tl.blocked((1, 4), (8, 4), (4, 1), (1, 0), (32, 32)), tl.blocked((4, 1), (4, 8), (1, 4), (0, 1), (32, 32)), 32)
    assert isinstance(found, dict) and found["memory"].kind == "linear_layout"


def test_pictures():
    a = Layout("(2,4):(4,1)")
    assert a.draw().splitlines()[-1].split("|")[1].split() == ["4", "5", "6", "7"]
    assert a._repr_svg_().startswith("<svg") and a.draw(bits=32).count("\n") > 2
    assert "T1V0" in Layout("(4,2):(2,1)").draw(tile=(8, 1))
    assert Layout("[lane: 1 2] -> [x:4]").draw("svg").startswith("<svg")
    assert Layout("<4,8>")._repr_svg_() is None


def test_errors_have_a_kind_and_a_place():
    with pytest.raises(tilewright.LayoutError, match="did you mean `coalesce`") as caught:
        tl.evaluate("coalesc(4:1)")
    assert caught.value.code == "expression"
    with pytest.raises(tilewright.LayoutError) as caught:
        Layout("(3,5):(1,7)") @ "4:1"
    assert caught.value.code == "composition" and isinstance(caught.value, ValueError)
    with pytest.raises(tilewright.LayoutError, match="no layout, number or tuple"):
        tl.size(1.5)
    with pytest.raises(tilewright.LayoutError, match="svg, text and latex"):
        Layout("4:1").draw("png")


def test_every_function_of_the_calculator_is_one_here():
    for name, signature in _core.functions():
        assert getattr(tl, name).__doc__ == signature
