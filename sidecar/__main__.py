"""`python -m sidecar` is the command `breaker-sidecar`."""

import sys

from sidecar.cli import main

sys.exit(main())
