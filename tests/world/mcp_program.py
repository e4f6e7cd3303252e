"""A server over standard input and output that answers in the very bytes that it is given.

`python tests/world/mcp_program.py <script>`: the script is JSON, `{"listing": text, "odd": [text, …]}`, in whose texts
`$id` stands for the id of the request. It needs no package, so that it starts at once.
"""

import json
import sys
from pathlib import Path

from mcp_answers import answers_to

script = json.loads(Path(sys.argv[1]).read_text("utf-8"))
for line in sys.stdin.buffer:
    for answer in answers_to(json.loads(line), script):
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
