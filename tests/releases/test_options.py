"""The options of a plan: checked once, with their names and meanings in the help of anyone who takes them."""

import inspect
from dataclasses import fields

import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.releases.options import Options, Planning, refuse_unknown, with_options


@pytest.mark.parametrize(
    "wrong",
    [{"draws": 0}, {"min_count": -1}, {"adjacency": "swap"}, {"contribution": 0}, {"objective": "r"}],
)
def test_options_are_checked_at_once(wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        Options(**wrong)


def test_names_are_read_once_also_from_an_iterator():
    options = Options(public_n=iter(["n"]), disjoint=iter([["a"], ["b"]]))
    assert options.stated.public_n == ("n",)
    assert options.stated.disjoint == (("a",), ("b",))
    assert options.stated is options.stated


def test_help_has_every_option_after_the_own_parameters():
    @with_options
    def f(first: int, *, second: str = "x", **planning: object) -> None:
        """Do it.

        Parameters
        ----------
        first : int
        second : str
        **planning

        Returns
        -------
        nothing : None
        """

    names = [field.name for field in fields(Options)]
    signature = inspect.signature(f)
    assert list(signature.parameters) == ["first", "second", *names]
    assert signature.parameters["draws"].default == 1
    text = inspect.getdoc(f)
    places = [text.index(f"\n{name} : ") for name in ("first", "second", *names)]
    assert places == sorted(places)
    assert text.index("Returns") > places[-1]
    assert "\n\nReturns\n-------\n" in text
    assert "**planning" not in text


def test_a_name_that_is_unknown_is_an_error_of_the_function():
    refuse_unknown("plan", dict.fromkeys(Planning.__annotations__))
    with pytest.raises(TypeError, match=r"^plan\(\) got an unexpected keyword argument 'draw'$"):
        refuse_unknown("plan", {"draw": 3})
