"""`python -m kernel.demo` runs the demo provider."""

import sys

from kernel.demo.provider import main

if __name__ == "__main__":
    sys.exit(main())
