//! Each promise of the library, explored.
#![expect(clippy::tests_outside_test_module, reason = "this file holds nothing else")]

#[test]
fn an_engine_that_goes_to_sleep_hears_a_call() {
    interleavings::a_call_ends_the_sleep();
}

#[test]
fn an_engine_hears_each_of_two_callers() {
    interleavings::each_of_two_calls_ends_a_sleep();
}

#[test]
fn batches_that_workers_hand_back_reach_a_sleeping_engine() {
    interleavings::all_that_workers_hand_back_arrives();
}

#[test]
fn an_owner_that_sleeps_hears_of_a_recall() {
    interleavings::a_recall_ends_the_sleep_of_its_owner();
}

#[test]
fn a_recalled_region_is_given_back_once() {
    interleavings::one_side_gives_the_region_back();
}

#[test]
fn a_logon_that_waits_for_a_session_sees_its_end() {
    interleavings::who_waits_for_the_end_sees_it();
}

#[test]
fn no_request_is_at_work_behind_the_end_of_its_session() {
    interleavings::nothing_begins_behind_the_end();
}

#[test]
fn a_reader_of_a_frame_that_is_evicted_gets_its_page_or_none() {
    interleavings::a_reader_gets_its_page_or_none();
}

#[test]
fn a_placed_byte_is_written_before_its_page_leaves() {
    interleavings::no_placed_byte_leaves_unwritten();
}

#[test]
fn a_page_placed_while_it_is_written_back_is_dirty_again() {
    interleavings::a_page_placed_during_its_write_back_stays_dirty();
}

#[test]
fn a_flush_finds_a_page_in_which_another_thread_places_too() {
    interleavings::who_placed_in_a_page_finds_it_to_write();
}
