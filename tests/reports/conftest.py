"""Tests of forms use the comparisons that tests of the analysis use."""

from tests.analysis.conftest import counted as counted
from tests.analysis.conftest import failed_five as failed_five
from tests.analysis.conftest import five as five
from tests.analysis.conftest import hostile as hostile
from tests.analysis.conftest import hostile_counts as hostile_counts
from tests.analysis.conftest import hostile_five as hostile_five
from tests.analysis.conftest import matrix as matrix
from tests.analysis.conftest import normal as normal
from tests.analysis.conftest import quiet as quiet
from tests.analysis.conftest import stepwise as stepwise
from tests.analysis.conftest import words_alone as words_alone
