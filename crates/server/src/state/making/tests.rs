//! Claims of names, and those who wait for them.

use tree::ShareConfig;

use super::*;

struct Scene {
    dir: tempfile::TempDir,
    share: Arc<Share>,
    makings: Arc<Makings>,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let share = Arc::new(Share::open(&ShareConfig::new("s", dir.path())).unwrap());
        Self { dir, share, makings: Arc::default() }
    }

    fn claim(&self, path: &str, makes: Makes) -> Result<Claim, Arc<Making>> {
        let path = SharePath::parse(path).unwrap();
        let spot = Spot::of(&self.share.new_name(&path).unwrap());
        self.makings.claim(spot, &self.share, &path, makes)
    }

    fn rename(&self, inode: u64, from: Option<&str>, to: &str) -> Result<Claim, Arc<Making>> {
        let path = |text| SharePath::parse(text).unwrap();
        let (file, to) = (FileKey { device: 1, inode }, path(to));
        let renames = from.map(|from| Renames { file, from: path(from) });
        let spot = Spot::of(&self.share.new_name(&to).unwrap());
        self.makings.claim_name(spot, &self.share, &to, renames)
    }

    fn found(&self, name: &str, bytes: &str) -> Found {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
        self.share.locate(&SharePath::parse(name).unwrap()).unwrap().found.unwrap()
    }
}

#[test]
fn a_name_is_claimed_once_in_its_directory_in_whatever_case() {
    let scene = Scene::new();
    let before = scene.makings.before(&folded("name"));
    let claim = scene.claim("Name", Makes::File).unwrap();
    assert!(claim.is_first_since(before));
    scene.claim("nAME", Makes::Directory).unwrap_err();
    scene.claim("d\\name", Makes::File).unwrap();
    drop(claim);
    let next = scene.claim("nAME", Makes::File).unwrap();
    assert!(!next.is_first_since(before), "it may have been made");
}

#[tokio::test]
async fn what_may_be_just_made_is_waited_for_until_it_is_known_what_was_made() {
    let scene = Scene::new();
    let (new, full) = (scene.found("new", ""), scene.found("full", "bytes"));
    let beside = scene.found("beside", "");
    std::os::unix::fs::symlink("beside", scene.dir.path().join("link")).unwrap();
    let making_of = |scene_too: &Scene, found: &Found, name: &str| {
        let (share, path) = (&scene_too.share, SharePath::parse(name).unwrap());
        scene.makings.of(share, || Sighting::of(share, found, &path))
    };
    let claim = scene.claim("NEW", Makes::File).unwrap();
    let making = making_of(&scene, &new, "new").expect("it is as empty as a new one");
    assert!(making_of(&scene, &full, "full").is_none());
    assert!(making_of(&scene, &beside, "beside").is_none(), "it has another name");
    assert!(making_of(&scene, &beside, "link").is_some(), "its own name is not known");
    let elsewhere = Scene::new();
    assert!(making_of(&elsewhere, &new, "new").is_none(), "in another directory");
    claim.note(full.key);
    making.settled(Some(new.key)).await;
    assert!(making_of(&scene, &new, "new").is_none());
    let making = making_of(&elsewhere, &full, "full").expect("it is what was made");
    drop(claim);
    making.settled(Some(full.key)).await;
    assert!(making_of(&scene, &full, "full").is_none());
}

#[test]
fn a_directory_is_moved_when_nothing_is_made_or_renamed_below_it() {
    let scene = Scene::new();
    let path = |text| SharePath::parse(text).unwrap();
    let _beside = scene.claim("f", Makes::File).unwrap();
    scene.makings.finish_below(&scene.share, &path("d"));
    for (from, to) in [(None, "d\\f"), (Some("old"), "d\\new"), (Some("d\\old"), "new")] {
        let claim = scene.rename(1, from, to).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                scene.makings.finish_below(&scene.share, &path("d"));
                assert!(ended.load(Ordering::SeqCst), "{from:?} to {to}");
            });
            // Whoever does not wait is through by then, more often than not.
            (0..100).for_each(|_| std::thread::yield_now());
            ended.store(true, Ordering::SeqCst);
            drop(claim);
        });
    }
}

#[test]
fn a_file_is_renamed_by_one_request_at_a_time() {
    let scene = Scene::new();
    let claim = scene.rename(1, Some("f"), "g").unwrap();
    scene.rename(1, Some("f"), "h").unwrap_err();
    let of_another = scene.rename(2, Some("e"), "h").unwrap();
    let (other, path) = (FileKey { device: 1, inode: 3 }, SharePath::parse("f").unwrap());
    drop(scene.makings.claim_file(&scene.share, &path, other));
    drop(scene.rename(1, None, "i").expect("a link takes no name away"));
    drop((claim, of_another));
    drop(scene.rename(1, Some("g"), "h").unwrap());
}
