//! The file browser. Its pages do with links and forms what its modules (`static/js/files.js`) do without loading a page; both ask the same
//! service, and the service asks the person's own process.

mod forms;
mod permissions;
mod trash;

use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use eirene_api::view::ListingView;
use eirene_core::SpaceName;
use eirene_files_protocol::{Cursor, EntryKind, Sort, TrashId};
use eirene_http::extract::{Id, SignedIn};
use eirene_http::problem::HttpError;
use eirene_services::app::App;
use eirene_services::error::AppError;
use eirene_services::files::Need;
use eirene_services::files::path::{AskedPath, shown};
use eirene_services::files::reading::ListWish;
use serde::Deserialize;
use serde_json::json;

use super::views::Choice;
use super::views::files::{EntryPage, FilesPage, FilesTroublePage, Ground, Look, Row, Undo, raw, state, targets};
use super::views::layout::Place;
use super::views::session::sentence;
use super::views::stripe;
use super::{Done, Shown, layout, show, show_as, words};

pub(crate) use self::forms::{archive, change_permissions, copy, extract, make_directory, move_to, throw_away};
pub(crate) use self::permissions::{page as permissions_page, set as set_list};
pub(crate) use self::trash::{delete, delete_page, empty, empty_page, page as trash_page, restore};

/// Entries of a page.
const PAGE: u32 = 200;
/// Longest filter, bytes.
const MAX_FILTER: usize = 255;

/// Which page of which directory. What nobody knows is as if it were not said.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Wanted {
    path: Option<String>,
    raw_path: Option<String>,
    sort: Option<String>,
    order: Option<String>,
    hidden: Option<String>,
    filter: Option<String>,
    cursor: Option<String>,
    undo: Option<String>,
    #[serde(flatten)]
    done: Done,
}

/// Which thing.
#[derive(Debug, Deserialize)]
pub(crate) struct At {
    path: Option<String>,
    raw_path: Option<String>,
    #[serde(flatten)]
    done: Done,
}

/// `GET /spaces/{space}/files`
pub(crate) async fn page(
    State(app): State<App>,
    signed_in: SignedIn,
    Id(space): Id<SpaceName>,
    Query(wanted): Query<Wanted>,
) -> Shown {
    let asked = AskedPath::new("path", wanted.path.clone(), wanted.raw_path.clone());
    match listing(&app, &signed_in, &space, &asked, wanted).await {
        Ok(page) => Ok(show(&page)?.into_response()),
        Err(error) => troubled(&signed_in, error, Trouble::reading(&space, &asked)),
    }
}

async fn ground(app: &App, signed_in: &SignedIn, space: &SpaceName) -> Result<Ground, AppError> {
    let within = app.files.within(&signed_in.actor, space, Need::Read).await?;
    Ok(Ground::new(space, within.space().title.as_str(), within.writable()))
}

/// The same, and the spaces that things of it can be moved or copied to.
async fn ground_and_targets(
    app: &App,
    signed_in: &SignedIn,
    space: &SpaceName,
) -> Result<(Ground, Vec<Choice>), AppError> {
    let within = app.files.within(&signed_in.actor, space, Need::Read).await?;
    let ground = Ground::new(space, within.space().title.as_str(), within.writable());
    let targets = targets(&ground, within.space().id, &app.files.writable(&signed_in.actor).await?);
    Ok((ground, targets))
}

async fn listing(
    app: &App,
    signed_in: &SignedIn,
    space: &SpaceName,
    asked: &AskedPath,
    wanted: Wanted,
) -> Result<FilesPage, AppError> {
    let (ground, targets) = ground_and_targets(app, signed_in, space).await?;
    let filter =
        wanted.filter.filter(|filter| filter.len() <= MAX_FILTER && !filter.contains('\0')).unwrap_or_default();
    let look = Look {
        sort: match wanted.sort.as_deref() {
            Some("size") => Sort::Bytes,
            Some("modified") => Sort::Modified,
            _ => Sort::Name,
        },
        descending: wanted.order.as_deref() == Some("desc"),
        hidden: wanted.hidden.as_deref() == Some("true"),
        filter: &filter,
    };
    let after: Option<Cursor> = wanted.cursor.and_then(|cursor| cursor.parse().ok());
    let wish = ListWish {
        path: asked.clone(),
        sort: look.sort,
        descending: look.descending,
        hidden: look.hidden,
        filter: (!filter.is_empty()).then(|| filter.clone()),
        after,
        limit: PAGE,
    };
    let listing = app.files.list(&signed_in.actor, space, wish).await?;
    let words = words();
    let path = &listing.path;
    let title = path
        .split_last()
        .map_or_else(|| ground.title.clone(), |(_, name)| super::views::shown::plain(&shown(name.as_bytes()).0));
    let empty = listing.listed.entries == 0;
    let mut count = words.count("browser.count", listing.listed.entries);
    if listing.listed.at_least {
        count = words.fill("browser.at_least", &[("count", &count)]);
    }
    let (sort, order) = look.order();
    let next = listing.listed.next.map(|cursor| cursor.to_string());
    let undo = wanted.undo.and_then(|id| id.parse::<TrashId>().ok());
    let frame = FilesPage {
        layout: layout(signed_in, Place::Spaces, &title).with_notice(wanted.done.notice()),
        crumbs: ground.crumbs(path),
        entry_href: if path.is_space() { String::new() } else { ground.entry_href(path.as_bytes()) },
        raw: raw(path.as_bytes()),
        sort,
        order,
        hidden: look.hidden,
        heads: look.heads(words, &ground, path),
        rows: listing.items.iter().map(|entry| ground.row(words, path, entry)).collect(),
        count,
        empty,
        next_href: next.map(|next| look.href(&ground, path, &next)).unwrap_or_default(),
        first_href: if after.is_some() { look.href(&ground, path, "") } else { String::new() },
        undo: undo.map(|id| Undo { action: format!("{}/{id}/restore", ground.trash_href) }),
        blank: Row { icon: "file", ..Row::default() },
        state: String::new(),
        filter: String::new(),
        ground,
    };
    let told = json!({
        "space": frame.ground.space, "title": frame.ground.title, "writable": frame.ground.writable,
        "targets": targets, "sort": sort, "order": order, "hidden": frame.hidden, "filter": filter,
        "list": ListingView::from(listing),
    });
    Ok(FilesPage { state: state(&told), filter, ..frame })
}

/// `GET /spaces/{space}/files/entry`: one thing, and what can be done with it.
pub(crate) async fn entry(
    State(app): State<App>,
    signed_in: SignedIn,
    Id(space): Id<SpaceName>,
    Query(at): Query<At>,
) -> Shown {
    let asked = AskedPath::new("path", at.path, at.raw_path);
    let found = async {
        let place = ground_and_targets(&app, &signed_in, &space).await?;
        asked.parse_inside()?;
        let looked = app.files.look(&signed_in.actor, &space, &asked).await?;
        let (_, may_be) = app.files.permissions(&signed_in.actor, &space, &asked).await?;
        let known = match looked.stated.kind {
            EntryKind::Directory => app.stripes.of(&looked.space, looked.path.as_bytes()).await,
            _ => None,
        };
        Ok((place, looked, may_be, known))
    };
    match found.await {
        Ok((place, looked, may_be, known)) => {
            let mut page = EntryPage::new(
                words(),
                layout(&signed_in, Place::Spaces, ""),
                place,
                (&looked.path, &looked.stated),
                &may_be,
            );
            page.layout.title.clone_from(&page.name);
            page.layout.notice = at.done.notice();
            page.storage = known.map(|known| stripe::facts(words(), &known)).unwrap_or_default();
            Ok(show(&page)?.into_response())
        }
        Err(error) => troubled(&signed_in, error, Trouble::reading(&space, &asked)),
    }
}

/// What somebody was about when nothing came of it.
struct Trouble {
    back_href: String,
    again_href: String,
}

impl Trouble {
    /// They looked at something: it may be there later.
    fn reading(space: &SpaceName, path: &AskedPath) -> Self {
        let ground = Ground::new(space, "", false);
        let bytes = path.parse().map(|path| path.as_bytes().to_vec()).unwrap_or_default();
        Self { back_href: ground.files_href.clone(), again_href: ground.directory_href(&bytes) }
    }

    /// They sent a form of this page.
    fn of_form(back_href: String) -> Self {
        Self { back_href, again_href: String::new() }
    }
}

/// Why nothing came of it, and what to do. What is not about files is for the pages that all errors have.
fn troubled(signed_in: &SignedIn, error: AppError, at: Trouble) -> Shown {
    let (title, code) = match &error {
        AppError::Files(trouble) => (trouble.text.to_string(), trouble.code),
        AppError::Invalid(errors) if !errors.is_empty() => (errors[0].message.clone(), "invalid"),
        _ => return Err(error.into()),
    };
    let advice = match code {
        "storage_away" | "storage_gone" => "browser.advice_away",
        "no_such_path" => "browser.advice_not_there",
        "permission_denied" | "read_only" => "browser.advice_may_not",
        "no_space" | "over_quota" => "browser.advice_no_room",
        _ => "browser.advice",
    };
    let title = sentence(&title);
    let away = code.starts_with("storage_");
    let page = FilesTroublePage {
        layout: layout(signed_in, Place::Spaces, &title),
        title,
        advice: words().get(advice),
        back_href: if away { "/".to_owned() } else { at.back_href },
        again_href: if away { at.again_href } else { String::new() },
    };
    let error = HttpError::from(error);
    let status = error.problem().status_code();
    let mut response: Response = show_as(status, &page)?;
    error.problem().add_headers(&mut response);
    Ok(response)
}
