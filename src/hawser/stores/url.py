"""The URL of a store where somebody may read it: in messages, logs and answers."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

_BEHIND_THE_USER: Final = re.compile(r"^((?:[^:/?#]*://|(?![^:/?#]*://))[^:@/?#]*):(?![0-9]+(?:[/?#,]|$))(?:[^/?#]*|.*)@")
"""From the colon to the last `@` before the path; where the password has a `/` of its own, to the last there is."""

_IN_THE_QUERY: Final = re.compile(r"([?&](?:ssl)?password=)[^&#]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """The URL as it may be shown; rather too much is hidden than too little."""
    return _IN_THE_QUERY.sub(rf"\g<1>{HIDDEN}", _BEHIND_THE_USER.sub(rf"\g<1>:{HIDDEN}@", url))
