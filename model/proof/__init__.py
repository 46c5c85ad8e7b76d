"""The rules for pools of any size, as formulas, and a solver's proof that they keep what they promise.

The formulas are plain Python functions over a state.  Read with a solver's terms they make queries
(`solver.py`, `prove.py`); read with small finite tables they are evaluated (`finite.py`), which ties
them to the reference (`tie.py`) and finds traces (`search.py`).  Only the solver needs z3.
"""
