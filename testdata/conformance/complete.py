"""complete.py MOUNT: exits 1, saying so, if the mount has no bf16 view (it says why in its README)."""
import os
import sys

if not os.path.isdir(sys.argv[1] + "/bf16"):
    print("no bf16 view: " + " ".join(l for l in open(sys.argv[1] + "/README.md") if "bf16" in l)[:300])
    sys.exit(1)
