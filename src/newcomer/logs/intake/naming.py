"""Naming: other names by which columns of logs commonly go, so that a file is read as it is and says what was guessed.

A name counts without regard to case, spaces and underscores: `userId`, `user_id` and `User ID` are one. Only a name
that a single column has is taken; which columns were recognised is always told.
"""

from __future__ import annotations

from collections.abc import Iterable

_PEOPLE = ("user", "customer", "visitor", "member", "person", "subscriber", "respondent", "student", "patient")
_THINGS = (
    *("action", "item", "movie", "film", "product", "article", "song", "track", "book", "video", "show", "game"),
    *("question", "option", "content", "offer", "message", "exercise", "recipe", "restaurant", "hotel"),
    *("treatment", "template", "variant"),
)
KNOWN = {
    "user": {*_PEOPLE, *(f"{one}id" for one in _PEOPLE), "uid"},
    "action": {*_THINGS, *(f"{one}id" for one in _THINGS)},
    "reward": {
        *("reward", "rating", "ratings", "score", "stars", "click", "clicks", "clicked", "like", "liked", "outcome"),
        *("response", "answer", "value", "grade", "feedback", "purchase", "purchased", "conversion", "converted"),
        *("plays", "playcount"),
    },
    "step": {
        *("step", "timestamp", "ts", "time", "datetime", "date", "eventtime", "createdat", "unixtime", "timestep"),
        *("round", "trial", "turn"),
    },
    "propensity": {"propensity", "propensityscore", "pscore"},
}


def plain(name: str) -> str:
    """A name without case, spaces and signs.

    >>> plain("User_ID"), plain("movieId")
    ('userid', 'movieid')
    """
    return "".join(letter for letter in name.lower() if letter.isalnum())


def known_as(part: str, names: Iterable[str]) -> list[str]:
    """The names under which a part of logs commonly goes.

    >>> known_as("reward", ["userId", "rating", "comment"])
    ['rating']
    """
    return [name for name in names if plain(name) in KNOWN[part]]
