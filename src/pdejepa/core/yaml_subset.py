"""The part of YAML that our files use: plain data, nothing that acts.

PyYAML's safe loader follows YAML 1.1, where `no` is false, `1e-5` is text, `1:30` is ninety and a bad date
raises a bare ValueError. Configuration written by people wants none of that, so this module narrows the safe
loader: only null, true/false, integers and floats are special, everything else is text. Tags, anchors,
aliases and repeated keys are refused: the first can build objects, the next two can grow a small file into
gigabytes, and the last hides a mistake.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_SPECIAL = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
        list("-+0123456789."),
    ),
)


class _Loader(yaml.SafeLoader):
    """Safe loader that knows four special scalars and refuses tags, anchors, aliases and repeated keys."""

    yaml_implicit_resolvers = {}  # noqa: RUF012  (the way PyYAML is configured)

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.constructor.ConstructorError(
                None, None, "anchors and aliases are not allowed", event.start_mark
            )
        if getattr(event, "tag", None) is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"the tag {event.tag} is not allowed", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode) and key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key_node.value} occurs twice", key_node.start_mark
                )
            seen.add(key_node.value if isinstance(key_node, yaml.ScalarNode) else "")
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Safe dumper that quotes every text which either YAML 1.1 or our loader would read as something else."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _int_base_ten(loader: _Loader, node: yaml.ScalarNode) -> int:
    # PyYAML would read 010 as eight.
    return int(loader.construct_scalar(node))


for _tag, _pattern, _first in _SPECIAL:
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _int_base_ten)


def parse(text: str) -> Any:
    """Return the data in `text`; ValueError with one readable line if it is not our kind of YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark is not None else ""
        raise ValueError(f"not valid YAML: {error.problem or error.context}{where}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (ValueError, OverflowError) as error:  # for example an integer of 5,000 digits
        raise ValueError(f"not valid YAML: {error}") from None


def dump(data: Any) -> str:
    """Return plain data as block-style YAML, keys in the order given."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
