"""`python -m barnabas.cli`, for where the `barnabas` script is not on the PATH."""

from barnabas.cli.main import main

main()
