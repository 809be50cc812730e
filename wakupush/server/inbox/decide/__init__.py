"""Deciding on messages: pure folds over messages and facts, one module for each kind.

Each message sees the facts as those before it left them. A decision names the limits that it was counted for; it is
made once as if all of them allowed it, and once more where one does not.
"""
