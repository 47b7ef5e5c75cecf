"""docs/limits.md: every limit in the source, with its value; what clients see and why is in docs/limits.yaml.

A limit is a setting named like one, or a constant of a module or crate named like one. Those that a client can meet
are described in docs/limits.yaml; all others are between the services, and their text is that beside the constant.
`make docs` writes the page, and a test says when it is not up to date or a limit has no reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from swiftlet.settings import SERVICES

ROOT = Path(__file__).parents[1]
PAGE, TEXTS = ROOT / "docs" / "limits.md", ROOT / "docs" / "limits.yaml"
_NAME = re.compile(r"_?(?:MAX|MOST|LARGEST|LONGEST)_[A-Z_]+|[A-Z_]+_LIMIT")
_SETTING = re.compile(r"(?:.*_)?max_.*|.*_(?:limit|max|per_second|concurrency)|concurrency")
_RUST = re.compile(
    r"((?:^ *///.*\n)*)^ *(?:pub(?:\(crate\))? )?const ((?:MAX|MOST|LARGEST)_?[A-Z_]*): [\w:]+ = ([^;]+);", re.MULTILINE
)


@dataclass(frozen=True)
class Limit:
    """One limit of the source."""

    key: str
    """`section.setting`, or `module.py NAME`."""
    value: str
    text: str
    """The text beside the limit in the source, in one line."""


def limits() -> dict[str, Limit]:
    """All of them, by key."""
    found = [*_settings(), *_constants()]
    return {limit.key: limit for limit in found}


def _settings() -> Iterator[Limit]:
    for service in SERVICES.values():
        yield from _of_section(service, "")


def _of_section(model: type[BaseModel], prefix: str) -> Iterator[Limit]:
    for name, info in model.model_fields.items():
        candidates = [info.annotation, *get_args(info.annotation)]
        section = next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)
        if section is not None:
            yield from _of_section(section, f"{prefix}{name}.")
        elif prefix == "limits." or _SETTING.fullmatch(name):
            yield Limit(prefix + name, _shown(info.default), info.description or "")


def _constants() -> Iterator[Limit]:
    for file in sorted((ROOT / "services" / "swiftlet").rglob("*.py")):
        module = file.relative_to(ROOT / "services" / "swiftlet")
        if not {"tests", "sim"} & set(module.parts):
            yield from _of_module(file, module.as_posix())
    for file in sorted((ROOT / "native" / "crates").glob("*/src/**/*.rs")):
        if "tests" not in file.stem:
            yield from _of_crate(file, file.relative_to(ROOT / "native" / "crates").as_posix().replace("src/", ""))


def _of_module(file: Path, module: str) -> Iterator[Limit]:
    body = ast.parse(file.read_text()).body
    for statement, behind in zip(body, [*body[1:], None], strict=True):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Name) and _NAME.fullmatch(target.id) and isinstance(statement, ast.Assign):
            value = _number(ast.unparse(statement.value))
            if value is not None:
                yield Limit(f"{module} {target.id}", value, _beside(behind))


def _beside(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _of_crate(file: Path, module: str) -> Iterator[Limit]:
    for comment, name, source in _RUST.findall(file.read_text()):
        text = " ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines())
        yield Limit(f"{module} {name}", _number(source) or f"`{' '.join(source.split())}`", text)


def _number(source: str) -> str | None:
    """The value of arithmetic on numbers; the text itself where it is made of names; None for what is no number."""
    plain = source.replace("_", "") if re.fullmatch(r"[\d_.x\sA-Fa-f*+<()-]+", source) else source
    if re.fullmatch(r"[\d.xA-Fa-f\s*+<()-]+", plain):
        return _shown(eval(plain, {"__builtins__": {}}))
    return (
        f"`{source}`" if re.fullmatch(r"[\w.\s*+<()-]+", source) and not source.startswith(("frozenset", "(")) else None
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if (isinstance(value, int) and value >= 4096 and value & (value - 1) == 0) or (
        isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0
    ):
        for shift, unit in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
            if value % (1 << shift) == 0:
                return f"{value >> shift:,} {unit}"
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def render() -> str:
    """Return the page as Markdown."""
    texts: Mapping[str, Any] = yaml.safe_load(TEXTS.read_text())
    known, told = limits(), set()
    lines = [texts["head"].rstrip()]
    for section in texts["sections"]:
        lines += ["", f"## {section['title']}", ""]
        if "text" in section:
            lines += [section["text"].rstrip(), ""]
        lines += ["| limit | value | where | when it is exceeded | reason |", "|---|---|---|---|---|"]
        for row in section["limits"]:
            limit = known[row["key"]]
            told.add(limit.key)
            lines.append(f"| {row['what']} | {limit.value} | {_where(limit.key)} | {row['met']} | {row['why']} |")
    lines += [
        "",
        "## Internal limits",
        "",
        texts["inner"].rstrip(),
        "",
        "| where | value | what it limits |",
        "|---|---|---|",
    ]
    reasons = texts.get("reasons", {})
    for key in sorted(set(known) - told):
        lines.append(f"| {_where(key)} | {known[key].value} | {reason_of(known[key], reasons)} |")
    return "\n".join(lines) + "\n"


def reason_of(limit: Limit, reasons: Mapping[str, str]) -> str:
    """Return the reason from the texts, or else the text beside the limit in the source; empty without either."""
    return (reasons.get(limit.key) or limit.text).replace("|", "\\|")


def _where(key: str) -> str:
    module, _, name = key.partition(" ")
    return f"`{module}` `{name}`" if name else f"`{key}`"


if __name__ == "__main__":
    PAGE.write_text(render())
