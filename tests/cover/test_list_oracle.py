"""The list oracle: what every request must read, life by life."""

from kvoracle.reference import ListOracle


def test_the_list_oracle_says_what_every_request_reads():
    lists = ListOracle()
    lists.create("a")
    lists.append("a", 1, 2)
    lists.fork("a", "b")
    lists.append("b", 3)
    lists.pin("a", "t")
    lists.append("a", 4)
    lists.unpin("t")

    assert lists.read("a") == [1, 2, 4]
    assert lists.read("b") == [1, 2, 3]

    lists.release_each(["b"])
    lists.release("a")
    assert lists.sequences == {}
