"""The one linear system: ridge regression per user.

state.py is what any policy remembers of its users, with the record of who started it; ridge.py is the system itself, V,
b and what is kept so that V^-1 never has to be formed; scoring_loops.py chooses by it, learning_loops.py takes rewards
into it.
"""
