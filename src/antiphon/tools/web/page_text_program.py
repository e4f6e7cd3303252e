"""The program of a child process: HTML from standard input, its title and text as JSON to standard output.

It imports nothing of this project, and is started by its path: `python -I -S <this file> <directory of resiliparse>`.
"""

import json
import re
import resource
import sys

CPU_SECONDS = 5
MEMORY_BYTES = 512 * 1024 * 1024
MOST_CHARACTERS = 2 * 1024 * 1024
EMPTY_LINK = re.compile(r"(?:(?<=\n)| |^)\((?:#[^()\s]*|javascript:[^()\n]*(?:\([^()\n]*\)[^()\n]*)*)?\)")
"""The address of a link that leads nowhere else, as it stands behind the link's words."""


def main() -> None:
    sys.path.append(sys.argv[1])
    for limit, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY_BYTES),
    ):
        resource.setrlimit(limit, (most, most))
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(sys.stdin.buffer.read().decode("utf-8", "replace"))
    text = extract_plain_text(tree, main_content=False, links=True, alt_texts=True)
    text = EMPTY_LINK.sub("", text[:MOST_CHARACTERS])
    found = {"title": (tree.title or "")[:1_000], "text": text}
    sys.stdout.buffer.write(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
