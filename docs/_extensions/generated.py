"""Parts of the reference that are written when the site is built, from the package itself.

A line `<!-- generated: commands -->` or `<!-- generated: http -->` of a page becomes the options of every command, or
every operation of the service. Docstrings become reStructuredText: code in single backticks is code, and entries of a
section "Parameters" are a definition list.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ENTRY = re.compile(r"^(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*)(?: : (.*))?$")
RULE = re.compile(r"^-{3,}$")
MARK = re.compile(r"^<!-- generated: (\w+) -->$", flags=re.MULTILINE)


def commands() -> str:
    """Usage, purpose, arguments and options of every command, as Markdown."""
    from typer.main import get_command

    from newcomer.cli import main

    parts = []
    for name, command in get_command(main.app).commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        context = command.make_context(name, [], resilient_parsing=True)
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        words = " ".join(["newcomer", name, *(one.metavar or one.name.upper() for one in arguments), "[OPTIONS]"])
        records = [one.get_help_record(context) for one in command.params if not getattr(one, "hidden", False)]
        rows = [
            f"| `{cell(what.replace(' <str>', '').replace(' <path>', ''))}` | {cell(told)} |"
            for what, told in records
            if told
        ]
        parts += [f"### newcomer {name}", f"```text\n{words}\n```", (command.help or "").strip()]
        parts += [f"```text\n{text}\n```" for text in examples(command.epilog or "")]
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def examples(epilog: str) -> list[str]:
    """The commands that the end of a help text shows, without their heading."""
    lines = [line.strip() for line in epilog.splitlines() if line.startswith("  ")]
    return ["\n".join(lines)] if lines else []


def cell(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def http() -> str:
    """Every operation of the decision service: what it takes, what it gives, who may call it; as Markdown."""
    from newcomer.serve.app import OPERATIONS
    from newcomer.serve.limits import Limits
    from newcomer.serve.openapi import openapi_document

    described = openapi_document(OPERATIONS, Limits(), tokens=True)
    roles = {(one.path, one.method.lower()): one.role for one in OPERATIONS}
    parts, shown = [described["info"]["description"]], []
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            parts += [f"### {method.upper()} {path}", f"{one['summary']}. *Token: {roles[path, method]}.*"]
            lines = [f"- {of['in']} `{of['name']}`: {kind(of['schema'])}" for of in one.get("parameters", ())]
            for title, body in (("takes", one.get("requestBody")), ("gives", one["responses"]["200"])):
                for media, content in (body or {}).get("content", {}).items():
                    lines.append(f"- {title} {kind(content['schema'])} (`{media}`)")
                    shown += re.findall(r"\[(\w+)\]", lines[-1])
            lines.append(f"- refuses with {', '.join(code for code in one['responses'] if code != '200')}")
            parts.append("\n".join(line for line in lines if not line.endswith("with ")))
    parts.append("## Shapes")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += [f"### {name}", schema.get("description", "").strip()]
        required, rows = schema.get("required", ()), []
        for field, of in schema.get("properties", {}).items():
            given = f"`{of['default']}`" if of.get("default", "") != "" else "empty"
            default = "required" if field in required else given if "default" in of else ""
            rows.append(f"| `{field}` | {cell(kind(of))} | {default} |")
        parts.append("\n".join(["| field | type | default |", "|---|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part)


def kind(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words; shapes are linked.

    >>> kind({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
    'integer of at least 1 or null'
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(kind, schema["anyOf"])))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    name = str(schema.get("type", "anything"))
    if name == "array":
        return f"list of ({kind(schema['items'])})" if "items" in schema else "list"
    low, high = schema.get("minimum", -1e100), schema.get("maximum", 1e100)
    if -1e15 < low and high < 1e15:
        return f"{name} from {low} to {high}"
    return f"{name} of at least {low}" if low > -1e15 else name


def named_outside(text: str, folder: Path, docs: Path) -> str:
    """Links to pages of the repository that are no part of the site become their names: there is nothing to follow."""

    def name(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found[2]))
        return found[0] if target.is_relative_to(docs) else f"{found[1]} (`{target.relative_to(docs.parent)}`)"

    return re.sub(r"\[([^]\[]+)\]\(((?:\.\./)+[^)\s#:]+\.md)(?:#[^)]*)?\)", name, text)


def restructured(lines: list[str]) -> list[str]:
    """A docstring of this package as reStructuredText."""
    told: list[str] = []
    listed = False
    for at, line in enumerate(lines):
        follows = lines[at + 1] if at + 1 < len(lines) else ""
        entry = ENTRY.match(line)
        if line.startswith((">>> ", "... ")) or (told and told[-1].startswith(("    >>> ", "    ... ")) and line):
            told.append("    " + line)
        elif RULE.match(line):
            continue
        elif RULE.match(follows):
            listed = line.startswith(("Parameters", "Attributes"))
            told += ["", f"**{line}**", ""]
        elif listed and entry:
            told += ["", f"``{entry[1].replace(', ', '``, ``')}``"] + [
                f"    {escaped(text)}" for text in entry.groups()[1:] if text
            ]
        else:
            listed = listed and (not line or line.startswith(" "))
            told.append(re.match(r" *", line)[0] + escaped(line.strip()))  # type: ignore[index]
    return examples_in_blocks(told)


def readable(signature: str | None) -> str | None:
    """A signature without what Python writes around names of types.

    >>> readable("(ids: TypeAliasForwardRef('ArrayLike') | None = None)")
    '(ids: ArrayLike | None = None)'
    """
    text = signature and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature)
    return text and re.sub(r"^Ask\[(.*)\]$", r"\1", text)  # what a client's call gives


def examples_in_blocks(lines: list[str]) -> list[str]:
    """Lines of an example stand in a block of code of their own."""
    told: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("    >>> ") and not inside:
            told += ["", ".. code-block:: pycon", ""]
            inside = True
        inside = inside and bool(line)
        told.append(line)
    return told


def escaped(text: str) -> str:
    """Code in single backticks as code, and what reStructuredText would read as markup as it stands."""
    parts = re.split(r"(`[^`]+`)", text)
    plain = [re.sub(r"([*|\\]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts]
    return "".join(f"`{part}`" if re.fullmatch(r"`[^`]+`", part) else plain[k] for k, part in enumerate(parts))


def setup(app: Any) -> dict[str, bool]:
    """Join the builder of the site."""
    makers = {"commands": commands, "http": http}

    def fill(app: Any, name: str, source: list[str]) -> None:
        folder = (Path(app.srcdir) / name).parent
        source[0] = MARK.sub(lambda found: makers[found[1]](), named_outside(source[0], folder, Path(app.srcdir)))

    def convert(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
        lines[:] = restructured(lines)

    def plain(app: Any, what: str, name: str, thing: object, options: Any, taken: Any, given: Any) -> Any:
        return readable(taken), readable(given)

    app.connect("source-read", fill)
    app.connect("autodoc-process-signature", plain)
    app.connect("autodoc-process-docstring", convert)
    return {"parallel_read_safe": True}
