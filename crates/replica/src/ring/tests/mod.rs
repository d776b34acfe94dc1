mod crash_images;
mod files;
mod order;
mod run;
mod stories;
mod torn_sectors;
