"""`python -m hawser.cli`, where no script is installed."""

from hawser.cli import main

main()
