"""Policies of other authors with priors learned from logs, to be measured beside ours; nothing else imports them.

Each is fitted from the same partial logs as `nc.fit`: rivals/priors.py says what each needs that logs do not have, and
what stands for it. All but the finite-model baselines of policies/ are Gaussian, and share rivals/gaussian.py.
"""
