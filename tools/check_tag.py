"""Does a tag name the version of the code? `python3 tools/check_tag.py v0.2.0`; standard library only.

A release is made from a tag `vX.Y.Z`. It must equal `__version__`, the changelog must have a section of that version
with a date and nothing left under *Unreleased*, and CITATION.cff must name it: each is what a user reads first.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent


def version(folder=FOLDER):
    """`__version__` of the package, read without importing it."""
    text = (folder / "src" / "newcomer" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE).group(1)


def faults(tag, folder=FOLDER):
    """What speaks against releasing this tag, a sentence each; nothing if all agree."""
    ours = version(folder)
    told = [] if tag == f"v{ours}" else [f"the tag is {tag} and __version__ is {ours}: tag v{ours}, or change it"]
    changes = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(ours)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        told.append(f"CHANGELOG.md has no section `## [{ours}] - YYYY-MM-DD`")
    cited = (folder / "CITATION.cff").read_text(encoding="utf-8")
    if not re.search(rf"^version: {re.escape(ours)}$", cited, re.MULTILINE):
        told.append(f"CITATION.cff does not name version {ours}")
    return told


def unreleased(folder=FOLDER):
    """The changes of the changelog that stand under no version yet."""
    changes = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    part = re.search(r"^## \[Unreleased\]$(.*?)(?=^## \[)", changes, re.MULTILINE | re.DOTALL)
    return re.findall(r"^- .*", part.group(1), re.MULTILINE) if part else []


def main(arguments):
    """The command; returns its exit code."""
    if len(arguments) != 1:
        print("usage: python3 tools/check_tag.py vX.Y.Z", file=sys.stderr)
        return 2
    told = faults(arguments[0].removeprefix("refs/tags/"))
    if unreleased():
        told.append(f"CHANGELOG.md has changes under Unreleased ({len(unreleased())}): move them to {version()}")
    for fault in told:
        print(fault, file=sys.stderr)
    if not told:
        print(f"{arguments[0]} is version {version()}")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
