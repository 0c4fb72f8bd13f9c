"""A process that a test measures: it and one child of it are busy for 0.3 seconds each."""

from __future__ import annotations

import json
import subprocess
import sys
import time

SPIN = "import time\nwhile time.process_time() < 0.3: pass"

if __name__ == "__main__":
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    while time.process_time() < 0.3:
        pass
    print(json.dumps({"asked": 0.6}))
