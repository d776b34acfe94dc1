//! What peers hold of the server, counted where several connections share a bound.
//!
//! ```text
//!              all
//!            /  |  \
//!   user "a"   "b"  guests          each account: so much of each resource, and no more
//!
//!   connection                      an account of its own, of no user: it may have sessions of several
//! ```
//!
//! Whoever takes something takes it of an account and of those above it, and has a [`Hold`] that gives it
//! back when dropped. The lowest account comes first: who has too much waits there, in the way of nobody
//! else, and the next account sees no more of it than that account may hold. Who waits is served in turn.
//!
//! Where something is used up, connections that hold much of it may be told to end. What they are about to give back is
//! lent to others at once; it is held like anything else, and what is given back next pays for it.
//!
//! The counters are semaphores: no lock is taken where nothing is short.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use basics::ordered::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use super::resource::{Maxima, RESOURCES, Resource};
use crate::access::Identity;
use crate::limits::Limits;
use crate::lock_order as order;

/// What one holder has left of each resource.
#[derive(Debug)]
pub(crate) struct Account {
    parent: Option<Arc<Self>>,
    maxima: Maxima,
    left: [Semaphore; RESOURCES],
    waiting: [AtomicUsize; RESOURCES],
    /// How much is held beyond the bounds, as connections that end will give it back.
    lent: [AtomicUsize; RESOURCES],
    /// Of the connections that were told to end, as they hold much of what is used up here.
    ending: Mutex<Vec<Weak<Self>>, order::Ending>,
    lanes: Mutex<HashMap<Lane, Weak<Self>>, order::Lanes>,
}

/// A file system, by its device: what work may wait for.
pub(crate) type Lane = u64;

impl Account {
    fn new(parent: Option<Arc<Self>>, maxima: Maxima) -> Arc<Self> {
        let left = maxima.map(Semaphore::new);
        let (waiting, lent, ending, lanes) = Default::default();
        Arc::new(Self { parent, maxima, left, waiting, lent, ending, lanes })
    }

    /// Of one connection, whoever logs on over it.
    pub(crate) fn of_connection() -> Arc<Self> {
        Self::new(None, Maxima::of_connection())
    }

    /// Of removals of names that were put off, whoever asked for them.
    pub(super) fn of_what_is_put_off() -> Arc<Self> {
        Self::new(None, Maxima::of_what_is_put_off())
    }

    /// An account of a part of these bounds for work in one lane alone, below one of all users in that lane: where a disk
    /// hangs, what waits for it leaves the other parts to what goes to others. Whoever takes of it takes of this account as
    /// well. It lives as long as something is held of it.
    pub(crate) fn in_lane(self: &Arc<Self>, lane: Lane) -> Arc<Self> {
        let parent = self.parent.as_ref().map(|parent| parent.in_lane(lane));
        let mut lanes = self.lanes.lock();
        if let Some(known) = lanes.get(&lane).and_then(Weak::upgrade) {
            return known;
        }
        lanes.retain(|_, one| one.strong_count() > 0);
        let made = Self::new(parent, self.maxima.in_lane());
        lanes.insert(lane, Arc::downgrade(&made));
        made
    }

    /// Takes so much, if that is left; what no account of these may hold is as much as one may.
    pub(crate) fn try_take(self: &Arc<Self>, what: Resource, amount: usize) -> Option<Hold> {
        let mut hold = Hold::nothing(self, what, amount);
        for account in self.and_above() {
            account.left[what as usize].try_acquire_many(hold.amount).ok()?.forget();
            hold.levels += 1;
        }
        Some(hold)
    }

    /// The same, or what connections that were told to end will give back, if nobody else has been lent it.
    pub(crate) fn try_borrow(self: &Arc<Self>, what: Resource, amount: usize) -> Option<Hold> {
        let mut hold = Hold::nothing(self, what, amount);
        for account in self.and_above() {
            match account.left[what as usize].try_acquire_many(hold.amount) {
                Ok(taken) => taken.forget(),
                Err(_) => account.lend(what, as_usize(hold.amount)).then_some(())?,
            }
            hold.levels += 1;
        }
        Some(hold)
    }

    /// Takes so much once it is left.
    pub(crate) async fn take(self: &Arc<Self>, what: Resource, amount: usize) -> Hold {
        let mut hold = Hold::nothing(self, what, amount);
        for account in self.and_above() {
            let _waiting = Waiting::of(&account.waiting[what as usize]);
            if let Ok(taken) = account.left[what as usize].acquire_many(hold.amount).await {
                taken.forget();
            }
            hold.levels += 1;
        }
        hold
    }

    /// Whether somebody waits for what is held of this account, or of one above it.
    pub(crate) fn is_wanted(&self, what: Resource) -> bool {
        self.and_above().any(|account| account.waiting[what as usize].load(Ordering::Relaxed) > 0)
    }

    /// How much is held.
    pub(crate) fn held(&self, what: Resource) -> usize {
        let left = self.left[what as usize].available_permits();
        self.maxima.of(what).saturating_sub(left) + self.lent[what as usize].load(Ordering::Relaxed)
    }

    /// How much of it is left to this account.
    #[cfg(test)]
    pub(crate) fn left(&self, what: Resource) -> usize {
        self.left[what as usize].available_permits()
    }

    /// Those of this account and those above it to which less than so much is left, from the lowest up.
    pub(crate) fn used_up(&self, what: Resource, amount: usize) -> impl Iterator<Item = &Self> {
        let left = move |account: &&Self| account.left[what as usize].available_permits();
        self.and_above().filter(move |account| left(account) < amount)
    }

    /// Whether it is that account, or below it.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.and_above().any(|account| std::ptr::eq(account, other))
    }

    /// Notes the account of a connection that ends, and will give back what it holds.
    pub(crate) fn add_ending(&self, connection: &Arc<Self>) {
        let mut ending = self.ending.lock();
        ending.retain(|one| one.strong_count() > 0 && one.as_ptr() != Arc::as_ptr(connection));
        ending.push(Arc::downgrade(connection));
    }

    /// Whether so much may be lent.
    pub(crate) fn may_lend(&self, what: Resource, amount: usize) -> bool {
        let lent = self.lent[what as usize].load(Ordering::Acquire);
        lent.checked_add(amount).is_some_and(|lent| lent <= self.held_by_ending(what))
    }

    fn lend(&self, what: Resource, amount: usize) -> bool {
        let max = self.held_by_ending(what);
        let more = |lent: usize| lent.checked_add(amount).filter(|lent| *lent <= max);
        let lent = &self.lent[what as usize];
        lent.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    // How much the connections that end have not given back yet.
    fn held_by_ending(&self, what: Resource) -> usize {
        let ending = self.ending.lock();
        ending.iter().filter_map(Weak::upgrade).map(|connection| connection.held(what)).sum()
    }

    // Pays first for what was lent.
    fn give_back(&self, what: Resource, amount: usize) {
        let lent = &self.lent[what as usize];
        let pays = |lent: usize| (lent > 0).then(|| lent.saturating_sub(amount));
        let paid = lent.fetch_update(Ordering::AcqRel, Ordering::Acquire, pays);
        let paid = paid.map_or(0, |lent| lent.min(amount));
        self.left[what as usize].add_permits(amount - paid);
    }

    fn and_above(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    fn most(&self, what: Resource) -> usize {
        self.and_above().map(|account| account.maxima.of(what)).min().unwrap_or(0)
    }
}

// Counted as long as it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something held, until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    account: Arc<Account>,
    what: Resource,
    amount: u32,
    /// Of how many accounts it was taken, from the lowest up.
    levels: usize,
}

impl Hold {
    fn nothing(account: &Arc<Account>, what: Resource, amount: usize) -> Self {
        let amount = u32::try_from(amount.min(account.most(what))).unwrap_or(u32::MAX);
        Self { account: Arc::clone(account), what, amount, levels: 0 }
    }

    /// How much is held.
    pub(crate) fn amount(&self) -> usize {
        as_usize(self.amount)
    }

    /// As much more of the same, for what ends at another time; `None` if that is not left.
    pub(crate) fn another(&self, amount: usize) -> Option<Self> {
        self.account.try_take(self.what, amount)
    }

    /// Gives back what is more than `amount`.
    pub(crate) fn shrink(&mut self, amount: usize) {
        let amount = u32::try_from(amount).unwrap_or(u32::MAX).min(self.amount);
        self.give_back(self.amount - amount);
        self.amount = amount;
    }

    /// Holds what another one of the same account holds, too. Another account's is returned.
    #[must_use = "what is of another account is still held"]
    pub(crate) fn absorb(&mut self, mut other: Self) -> Option<Self> {
        let is_same =
            self.is_of(&other.account) && (self.what, self.levels) == (other.what, other.levels);
        let Some(amount) = self.amount.checked_add(other.amount).filter(|_| is_same) else {
            return Some(other);
        };
        self.amount = amount;
        other.amount = 0;
        None
    }

    /// Whether it was taken of this account.
    pub(crate) fn is_of(&self, account: &Arc<Account>) -> bool {
        Arc::ptr_eq(&self.account, account)
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.account.is_wanted(self.what)
    }

    fn give_back(&self, amount: u32) {
        let amount = as_usize(amount);
        if amount > 0 {
            let accounts = self.account.and_above().take(self.levels);
            accounts.for_each(|account| account.give_back(self.what, amount));
        }
    }
}

fn as_usize(amount: u32) -> usize {
    usize::try_from(amount).expect("32 bits fit usize")
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

/// Room for one answer, or one request, of a connection and of whoever it belongs to.
#[derive(Debug)]
pub(crate) struct Room {
    of_connection: Hold,
    of_holder: Hold,
}

impl Room {
    /// Room of both, if it is left.
    pub(crate) fn try_take(
        (connection, holder): (&Arc<Account>, &Arc<Account>),
        what: Resource,
        amount: usize,
    ) -> Option<Self> {
        let of_connection = connection.try_take(what, amount)?;
        Some(Self { of_connection, of_holder: holder.try_take(what, amount)? })
    }

    /// Room of both, the holder's lent if it is used up: see [`Account::try_borrow`].
    pub(crate) fn try_borrow(
        (connection, holder): (&Arc<Account>, &Arc<Account>),
        what: Resource,
        amount: usize,
    ) -> Option<Self> {
        let of_connection = connection.try_take(what, amount)?;
        Some(Self { of_connection, of_holder: holder.try_borrow(what, amount)? })
    }

    /// Whether it is of this holder.
    pub(crate) fn is_of(&self, holder: &Arc<Account>) -> bool {
        self.of_holder.is_of(holder)
    }

    /// Room of both once it is left.
    pub(crate) async fn take(
        (connection, holder): (&Arc<Account>, &Arc<Account>),
        what: Resource,
        amount: usize,
    ) -> Self {
        let of_connection = connection.take(what, amount).await;
        Self { of_connection, of_holder: holder.take(what, amount).await }
    }

    /// Gives back what is more than `amount`.
    pub(crate) fn shrink(&mut self, amount: usize) {
        self.of_connection.shrink(amount);
        self.of_holder.shrink(amount);
    }

    /// Holds what another one of the same accounts holds, too. What is of others is returned.
    #[must_use = "what is of other accounts is still held"]
    pub(crate) fn absorb(&mut self, other: Self) -> Option<Self> {
        if !self.is_of(&other.of_holder.account) {
            return Some(other);
        }
        let of_connection = self.of_connection.absorb(other.of_connection);
        let of_holder = self.of_holder.absorb(other.of_holder);
        of_connection
            .zip(of_holder)
            .map(|(of_connection, of_holder)| Self { of_connection, of_holder })
    }

    /// Whether another connection waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.of_holder.is_wanted()
    }
}

/// All accounts.
#[derive(Debug)]
pub(crate) struct Accounts {
    all: Arc<Account>,
    guests: Arc<Account>,
    of_users: Maxima,
    users: Mutex<Users, order::Accounts>,
}

#[derive(Debug, Default)]
struct Users {
    accounts: HashMap<Arc<str>, Weak<Account>>,
    sweep_at: usize,
}

impl Accounts {
    /// Nobody holds anything.
    pub(crate) fn new(limits: &Limits) -> Self {
        let all = Account::new(None, Maxima::of_all(limits));
        let guests = Account::new(Some(Arc::clone(&all)), Maxima::of_guests(limits));
        Self { all, guests, of_users: Maxima::of_user(limits), users: Mutex::default() }
    }

    /// The account of a user, or the one that guests share.
    pub(crate) fn of(&self, identity: &Identity) -> Arc<Account> {
        let Identity::User(name) = identity else { return Arc::clone(&self.guests) };
        let mut users = self.users();
        if let Some(account) = users.accounts.get(name).and_then(Weak::upgrade) {
            return account;
        }
        // Those whose users hold nothing go when they may be half of the table.
        if users.accounts.len() >= users.sweep_at {
            users.accounts.retain(|_, account| account.strong_count() > 0);
            users.sweep_at = SWEEP_MIN.max(2 * users.accounts.len());
        }
        let account = Account::new(Some(Arc::clone(&self.all)), self.of_users);
        users.accounts.insert(Arc::clone(name), Arc::downgrade(&account));
        account
    }

    /// How much everybody together holds.
    pub(crate) fn held(&self, what: Resource) -> usize {
        self.all.held(what)
    }

    fn users(&self) -> MutexGuard<'_, Users, order::Accounts> {
        self.users.lock()
    }
}

/// Fewer accounts than this are not worth a sweep.
const SWEEP_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: Resource = Resource::Locks;

    fn family(user: usize, all: usize) -> (Arc<Account>, Arc<Account>, Arc<Account>) {
        let parent = Account::new(None, Maxima::UNBOUNDED.with(LOCKS, all));
        let maxima = Maxima::UNBOUNDED.with(LOCKS, user);
        let child = || Account::new(Some(Arc::clone(&parent)), maxima);
        let (first, second) = (child(), child());
        (parent, first, second)
    }

    #[test]
    fn a_hold_is_of_all_accounts_above_and_ends_with_its_owner() {
        let (all, first, second) = family(3, 5);
        let held = first.try_take(LOCKS, 3).unwrap();
        assert!(first.try_take(LOCKS, 1).is_none(), "its own are taken");
        assert!(second.try_take(LOCKS, 3).is_none(), "no more than two are left of all");
        assert_eq!((second.held(LOCKS), all.held(LOCKS)), (0, 3), "a refusal keeps nothing");
        drop(held);
        assert_eq!(all.held(LOCKS), 0);
    }

    #[test]
    fn what_is_lent_is_held_and_no_more_is_lent_than_those_who_end_give_back() {
        let (all, first, second) = family(6, 6);
        let connection = Account::new(None, Maxima::UNBOUNDED);
        let ending = || Room::try_take((&connection, &first), LOCKS, 2).unwrap();
        let (early, late) = (ending(), ending());
        let rest = first.try_take(LOCKS, 2).unwrap();
        assert!(first.try_borrow(LOCKS, 1).is_none(), "nobody ends");
        first.add_ending(&connection);
        assert!(first.try_borrow(LOCKS, 1).is_none(), "nor is it lent above, where nobody ends");
        all.add_ending(&connection);
        let lent = first.try_borrow(LOCKS, 3).unwrap();
        assert!(!first.may_lend(LOCKS, 2) && first.may_lend(LOCKS, 1));
        assert!(second.try_borrow(LOCKS, 2).is_none(), "it is lent once");
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (9, 9));
        drop((early, late));
        // One more than was lent came back.
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (5, 5));
        assert!(first.try_take(LOCKS, 2).is_none() && first.try_borrow(LOCKS, 2).is_none());
        let last = first.try_take(LOCKS, 1).unwrap();
        drop((rest, lent, last));
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (0, 0));
        assert!(first.try_take(LOCKS, 7).is_some_and(|hold| hold.amount == 6));
    }

    #[test]
    fn a_hold_that_shrinks_gives_the_rest_back() {
        let (all, first, _) = family(8, 8);
        let mut held = first.try_take(LOCKS, 8).unwrap();
        held.shrink(3);
        held.shrink(5);
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (3, 3));
        drop(held);
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (0, 0));
    }

    #[test]
    fn holds_of_one_account_go_back_in_one_piece() {
        let (all, first, second) = family(8, 8);
        let mut held = first.try_take(LOCKS, 2).unwrap();
        assert!(held.absorb(first.try_take(LOCKS, 3).unwrap()).is_none());
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (5, 5));
        let anothers = held.absorb(second.try_take(LOCKS, 1).unwrap());
        assert_eq!((second.held(LOCKS), all.held(LOCKS)), (1, 6), "another's is held as before");
        drop((held, anothers));
        assert_eq!((first.held(LOCKS), all.held(LOCKS)), (0, 0));
    }

    #[test]
    fn who_wants_more_than_there_is_gets_all_there_is() {
        let (all, first, _) = family(8, 4);
        let held = first.try_take(LOCKS, 100).unwrap();
        assert_eq!(all.held(LOCKS), 4);
        drop(held);
    }

    #[tokio::test]
    async fn who_has_too_much_waits_in_the_way_of_nobody_else() {
        let (all, first, second) = family(2, 3);
        let held = first.try_take(LOCKS, 2).unwrap();
        let mut more = Box::pin(first.take(LOCKS, 2));
        assert!(futures_poll(&mut more).is_none());
        assert!(held.is_wanted() && all.held(LOCKS) == 2, "it waits below");
        assert!(second.try_take(LOCKS, 1).is_some());
        drop(held);
        let held = more.await;
        assert!(!held.is_wanted());
    }

    #[tokio::test]
    async fn who_gives_up_waiting_holds_nothing() {
        let (all, first, second) = family(3, 3);
        let held = first.try_take(LOCKS, 2).unwrap();
        let mut more = Box::pin(second.take(LOCKS, 2));
        assert!(futures_poll(&mut more).is_none());
        drop(more);
        assert_eq!((second.held(LOCKS), all.held(LOCKS)), (0, 2));
        assert!(!held.is_wanted());
    }

    fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = T>>>) -> Option<T> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn names_that_are_one_user_share_an_account() {
        let accounts = Accounts::new(&Limits::default());
        let first = accounts.of(&Identity::user("Alice"));
        let second = accounts.of(&Identity::user("alice@example.org"));
        assert!(Arc::ptr_eq(&first, &second));
        let guests = accounts.of(&Identity::Guest { client: [1; 16] });
        assert!(Arc::ptr_eq(&guests, &accounts.of(&Identity::Guest { client: [2; 16] })));
    }
}
