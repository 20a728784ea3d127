"""What `get_user_stats` has to give."""

from stats.summary import get_user_stats


def test_users_are_counted_and_averaged():
    stats = get_user_stats({"ada": 3, "bob": 1, "eve": 2})
    assert stats["count"] == 3
    assert stats["mean"] == 2


def test_of_no_users_all_figures_are_zero():
    assert set(get_user_stats({}).values()) == {0}


def test_the_data_stay_as_they_are():
    data = {"ada": 3}
    get_user_stats(data)
    assert data == {"ada": 3}
