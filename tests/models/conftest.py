import logging

import pytest

pytest.register_assert_rewrite("tests.conformance")


@pytest.fixture
def warnings_of_transformers(caplog):
    """What transformers' loggers and ours under them say, each sentence once."""
    from transformers.utils import logging as transformers_logging

    root, verbosity = logging.getLogger("transformers"), transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    transformers_logging.warning_once.cache_clear()
    loggers = [root, logging.getLogger("hf_ptm_ext")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.propagate = True
    yield caplog
    for logger, propagate in zip(loggers, before, strict=True):
        logger.propagate = propagate
    transformers_logging.set_verbosity(verbosity)
