from __future__ import annotations

from domainbert.settings.trainer_arguments import RESERVED, SPEED_ONLY, trainer_arguments


def test_trainer_arguments_are_those_of_lightning() -> None:
    import inspect

    from lightning import Trainer

    assert list(trainer_arguments()) == list(inspect.signature(Trainer).parameters)
    assert set(RESERVED) | SPEED_ONLY <= set(trainer_arguments()) and not SPEED_ONLY & set(RESERVED)
