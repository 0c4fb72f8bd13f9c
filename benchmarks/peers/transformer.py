"""A small transformer pretrained on logged people, played with newcomers: python transformer.py FOLDER SECONDS.

It runs in the environment `torch` and needs nothing of newcomer. FOLDER holds `logged.parquet` (user,
question from 0, answer) and `asked.parquet` (case, user, t, k, question, mean, reward). Training sequences are random
questions, with replacement, of one logged person, with the answers that the person gave; at each place the network
predicts the answer to the question at hand from the pairs before it. One person in ten is kept for early stopping.
With newcomers it takes the question of largest expected answer ("greedy"), or of largest answer drawn from what it
predicts ("drawn"). `played.parquet` gets method, case, user, regret and the processor seconds of training.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

WIDTH, LAYERS, HEADS, LENGTH, BATCH, RATE, EVERY, PATIENCE = 64, 2, 2, 41, 64, 1e-3, 50, 10
People = list[tuple[np.ndarray, np.ndarray]]  # questions and coded answers of each person


class Network(nn.Module):
    """Answers' log-odds at each place, from the question there and the pairs before."""

    def __init__(self, questions: int, answers: int) -> None:
        super().__init__()
        self.asked, self.before = nn.Embedding(questions, WIDTH), nn.Embedding(questions + 1, WIDTH)
        self.answer, self.place = nn.Embedding(answers + 1, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, answers)
        self.common = nn.Embedding(questions, answers)  # what everybody answers
        nn.init.zeros_(self.common.weight)

    def forward(self, question: Tensor, answer: Tensor) -> Tensor:
        """(batch, places) of questions and answers to (batch, places, answers); the answer at a place is not seen."""
        nobody = question.new_zeros((len(question), 1))
        before = torch.cat([nobody, question[:, :-1] + 1], dim=1)
        answered = torch.cat([nobody, answer[:, :-1] + 1], dim=1)
        place = torch.arange(question.shape[1])
        x = self.asked(question) + self.before(before) + self.answer(answered) + self.place(place)
        mask = nn.Transformer.generate_square_subsequent_mask(question.shape[1])
        return self.out(self.layers(x, mask=mask, is_causal=True)) + self.common(question)


def sequences(people: People, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Random questions of random people, and their answers."""
    question, answer = np.empty((2, count, LENGTH), dtype=np.int64)
    for row, person in enumerate(rng.integers(len(people), size=count)):
        own, given = people[person]
        drawn = rng.integers(len(own), size=LENGTH)
        question[row], answer[row] = own[drawn], given[drawn]
    return torch.from_numpy(question), torch.from_numpy(answer)


def trained(people: People, questions: int, answers: int, seconds: float) -> Network:
    """The network of least loss on people kept apart."""
    torch.manual_seed(0)
    rng, network = np.random.default_rng(0), Network(questions, answers)
    cut = len(people) // 10
    apart = sequences(people[:cut], 256, np.random.default_rng(1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01)
    best, state, waited, began, step = np.inf, network.state_dict(), 0, time.process_time(), 0
    while time.process_time() - began < seconds and waited < PATIENCE:
        question, answer = sequences(people[cut:], BATCH, rng)
        loss = nn.functional.cross_entropy(network(question, answer).flatten(0, 1), answer.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % EVERY == 0:
            network.eval()
            with torch.no_grad():
                found = nn.functional.cross_entropy(network(*apart).flatten(0, 1), apart[1].flatten()).item()
            network.train()
            waited = 0 if found < best else waited + 1
            if found < best:
                best, state = found, {name: value.clone() for name, value in network.state_dict().items()}
    print(f"{step} steps, loss {best:.4f}", flush=True)
    network.load_state_dict(state)
    return network.eval()


def regrets(network: Network, rows: pl.DataFrame, values: np.ndarray, drawn: bool) -> np.ndarray:
    """Regret (n,) of newcomers, from arrays (n, T, K)."""
    shape = [rows[name].n_unique() for name in ("user", "t", "k")]
    question, mean, reward = (rows[name].to_numpy().reshape(shape) for name in ("question", "mean", "reward"))
    rng, (n, rounds, count) = np.random.default_rng(2), shape
    history, given, regret = np.zeros((n, 0), dtype=np.int64), np.zeros((n, 0), dtype=np.int64), np.zeros(n)
    for t in range(rounds):
        asked = np.concatenate([np.repeat(history, count, axis=0), question[:, t].reshape(-1, 1)], axis=1)
        known = np.concatenate([np.repeat(given, count, axis=0), np.zeros((n * count, 1), dtype=np.int64)], axis=1)
        with torch.no_grad():
            chance = torch.softmax(network(torch.from_numpy(asked), torch.from_numpy(known))[:, -1], dim=1).numpy()
        if drawn:
            score = values[(chance.cumsum(axis=1) > rng.random((len(chance), 1)) - 1e-7).argmax(axis=1)]
            score = score + 1e-6 * (chance @ values)  # ties of drawn answers by the expected ones
        else:
            score = chance @ values
        chosen = score.reshape(n, count).argmax(axis=1)
        who = np.arange(n)
        regret += mean[:, t].max(axis=1) - mean[who, t, chosen]
        nearest = np.abs(reward[who, t, chosen][:, None] - values).argmin(axis=1)
        history = np.concatenate([history, question[who, t, chosen][:, None]], axis=1)
        given = np.concatenate([given, nearest[:, None]], axis=1)
    return regret


def main(folder: Path, seconds: float) -> None:
    """Train, play every case both ways, write."""
    torch.set_num_threads(1)
    logged, asked = pl.read_parquet(folder / "logged.parquet"), pl.read_parquet(folder / "asked.parquet")
    values = np.sort(logged["answer"].unique().to_numpy())
    coded = logged.with_columns(code=pl.Series(np.searchsorted(values, logged["answer"].to_numpy())))
    people = [
        (own["question"].to_numpy(), own["code"].to_numpy()) for _, own in coded.group_by("user", maintain_order=True)
    ]
    questions = 1 + max(int(logged["question"].max()), int(asked["question"].max()))
    began = time.process_time()
    network = trained(people, questions, len(values), seconds)
    spent, found = time.process_time() - began, []
    for (case,), rows in asked.group_by("case", maintain_order=True):
        for name in ("greedy", "drawn"):
            regret = regrets(network, rows, values, name == "drawn")
            told = {"user": rows["user"].unique(maintain_order=True), "regret": regret}
            found.append(pl.DataFrame(told).with_columns(case=pl.lit(case), method=pl.lit(f"transformer, {name}")))
    pl.concat(found).with_columns(seconds=spent).write_parquet(folder / "played.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
