"""Assertions of shared cases explain themselves as those of test modules do."""

import pytest

pytest.register_assert_rewrite("tests.support.harness_cases", "tests.support.harness_stage")
