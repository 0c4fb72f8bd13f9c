"""Remedies: what to do about each finding, by verdict."""

from __future__ import annotations

from newcomer.verdicts import Verdict

FINE = "Nothing to do."
MORE = "Log more users, or longer histories, and check again."

ADAPTIVE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Either the logger learned from rewards, or actions were chosen by taste, which the first action alone"
    " may be too little to show. Fit with em, which allows the former, not with sold, and try the model on a small"
    " random part of newcomers first.",
    "broken": "Show a part of the users, one in ten say, random actions for their whole history, and run this again on"
    " them; until then a model of these logs is an experiment, beside what runs today, and no promise.",
}
CHOSEN: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "People, or a logger, chose what was shown by taste: expect too good a picture of rarely shown"
    " actions, and try the model on a small random part of newcomers first.",
    "broken": "What was shown was chosen by taste: rewards of other actions are not what these rows say. Show a part of"
    " the users random actions and run this again on them; until then a model of these logs is an experiment, beside"
    " what runs today, and no promise.",
}
LIKED: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "People, or a logger that knew or learned their taste, chose what was logged: the mean of an action"
    " that few log is that of its friends, and too high for others. Offer a small random part of newcomers random"
    " actions, and compare the means.",
    "broken": "People log what they like: the mean of an action is that of its friends, and both the population mean"
    " and what is learned promise too much for what somebody would not have chosen. Ask a part of the users about"
    " random actions and fit to those; until then offer only what newcomers themselves chose to look at.",
}
SHOWN_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users were shown different things: what goes together across these groups rests on few users.",
    "broken": "Each user saw one kind of thing only: no log of this sort can tell how tastes for the kinds go"
    " together. Show a part of the users everything.",
}
LENGTH_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Users who like what they see stay longer: the average counts them more often than newcomers will.",
    "broken": "Who stays depends on taste: cut all histories to the same first rows, and fit on those.",
}
DRIFT_ADVICE: dict[Verdict, str] = {
    "fine": FINE,
    "unknowable": MORE,
    "doubtful": "Rewards change with position: log the position, or the time, as a feature.",
    "broken": "Rewards at the end of a history are not those of its beginning: log the position, or the time, as a"
    " feature, or fit on the first rows alone, which newcomers will meet.",
}
