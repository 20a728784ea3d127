"""How the steps of each kind run. A step names its runner in `steps/KIND/spec.py`; the core imports none of these."""
