"""What is compiled on a GPU is what was: a block that is not compiled runs several times slower, and nothing fails.

Made anew by `python -m tests.golden.make compiled_parts`.
"""

from __future__ import annotations

from torch import nn

from pdejepa.models.blocks import Block
from tests.golden.cases import method_stage
from tests.golden.compiled import Parts, compiled, compiled_parts
from tests.golden.made import read


def parts() -> dict[str, Parts]:
    return {name: found for name, found in read("compiled_parts").items() if name != "machine"}


def test_the_same_parts_are_compiled() -> None:
    assert compiled_parts() == parts()


def test_a_block_that_is_not_compiled_is_noticed() -> None:
    stage, expected = method_stage("dynamics", "advection"), parts()["dynamics of advection"]
    block = stage.get_submodule("model.encoder.trunk.blocks.1")
    assert isinstance(block, Block)
    block.compiles = False
    assert expected.items() - compiled(stage).items() == {("model.encoder.trunk.blocks.1", "Block")}


def test_another_class_in_the_place_of_a_part_is_noticed() -> None:
    class Other(Block):
        pass

    stage, expected = method_stage("dynamics", "advection"), parts()["dynamics of advection"]
    blocks = stage.get_submodule("model.encoder.trunk.blocks")
    assert isinstance(blocks, nn.ModuleList)
    blocks[0] = Other(16, 2, 32)
    assert expected.items() - compiled(stage).items() == {("model.encoder.trunk.blocks.0", "Block")}
