"""The messages of a task: open → claim → facts → decide → seal → write → pass on → follow up.

`steps` runs them in this order; `isolation` stands around it.
"""
