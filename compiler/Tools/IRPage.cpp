// Shows what each pass does to a program as one HTML page.
#include "IRPage.h"
#include "LineDiff.h"
#include "support/Markup.h"
#include <algorithm>

namespace xfc {
namespace {

constexpr size_t contextLines = 3; // around what changed

constexpr std::string_view irStyle =
    R"(:root{--removed:#ffe3e0;--added:#dcf5e0;--found:#ffd54a}
@media (prefers-color-scheme:dark){:root{--removed:#5a2320;--added:#1d4426;--found:#8a6a00}}
body{margin:1em auto;max-width:2400px}h1{font-size:1.4em}h2{font-size:1.1em;margin:1.4em 0 .3em}
header{position:sticky;top:0;background:var(--paper);padding:.5em 0;border-bottom:1px solid var(--line);z-index:1}
input,button{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--line);padding:.2em .5em}input{width:22em;max-width:60%}
details{content-visibility:auto;contain-intrinsic-size:auto 2em}summary{cursor:pointer;padding:.15em 0}summary span{color:var(--faint)}
.pair{display:grid;grid-template-columns:1fr 1fr;gap:0 4px}pre{font:12px/1.35 monospace;margin:0;padding:0 .4em;overflow-x:auto;min-width:0;tab-size:2}
.removed{background:var(--removed)}.added{background:var(--added)}.left-out{color:var(--faint);text-align:center;font-size:12px}
::highlight(found){background:var(--found);color:var(--text)}.hidden{display:none})";

// Finds a text in all IR of the page: sections without it are hidden, and those with it are opened one by one.
constexpr std::string_view irScript =
    R"(const box = document.getElementById('query'), status = document.getElementById('status');
const sections = [...document.querySelectorAll('details')].map(node => ({node, pres: [...node.querySelectorAll('pre')]}));
const most = 5000;
let found = [], at = -1, timer;
function clear() {
  found = [];
  at = -1;
  if (window.CSS && CSS.highlights) CSS.highlights.clear();
}
function search() {
  clear();
  const query = box.value.toLowerCase();
  let total = 0;
  for (const {node, pres} of sections) {
    let here = 0;
    if (query)
      for (const pre of pres) {
        const text = pre.textContent.toLowerCase();
        for (let from = text.indexOf(query); from >= 0; from = text.indexOf(query, from + query.length)) {
          ++here;
          if (found.length < most) found.push({node, pre, from, length: query.length});
        }
      }
    total += here;
    node.classList.toggle('hidden', query !== '' && here === 0);
  }
  status.textContent = query ? total + ' found' + (total > found.length ? ', the first ' + most + ' to go to' : '') : '';
}
function rangeOf({pre, from, length}) {
  const range = new Range();
  pre.normalize(); // a parser may have split a long text
  range.setStart(pre.firstChild, Math.min(from, pre.firstChild.length));
  range.setEnd(pre.firstChild, Math.min(from + length, pre.firstChild.length));
  return range;
}
function go(step) {
  if (!found.length) return;
  at = (at + step + found.length) % found.length;
  const hit = found[at];
  hit.node.open = true;
  const range = rangeOf(hit);
  if (window.CSS && CSS.highlights && window.Highlight) CSS.highlights.set('found', new Highlight(range));
  else getSelection().setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
  const place = range.getBoundingClientRect();
  hit.pre.scrollLeft += place.left - hit.pre.getBoundingClientRect().left - 40;
  window.scrollBy(0, place.top - window.innerHeight / 3);
  status.textContent = (at + 1) + ' of ' + found.length;
}
box.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(search, 200); });
box.addEventListener('keydown', event => {
  if (event.key !== 'Enter') return;
  clearTimeout(timer);
  if (at < 0) search();
  go(event.shiftKey ? -1 : 1);
});
document.getElementById('next').addEventListener('click', () => go(1));
document.getElementById('previous').addEventListener('click', () => go(-1));
document.getElementById('open').addEventListener('click', () => {
  const shown = sections.filter(({node}) => !node.classList.contains('hidden')), all = shown.every(({node}) => node.open);
  for (const {node} of shown) node.open = !all;
});
)";

using Lines = std::vector<std::string_view>;

std::string escapedLines(const Lines &lines, size_t begin, size_t end) {
  std::string text;
  for (size_t at = begin; at < end; ++at)
    text += escapeMarkup(lines[at]) + "\n";
  return text;
}

// Both sides of a part, of the same height.
std::string pairOf(const Lines &before, const Lines &after, const DiffPart &part, const char *removed,
                   const char *added) {
  const size_t height = std::max(part.beforeEnd - part.beforeBegin, part.afterEnd - part.afterBegin);
  auto side = [&](const char *kind, const Lines &lines, size_t begin, size_t end) {
    // HTML drops a line end that follows <pre>.
    return std::string("<pre") + kind + ">\n" + escapedLines(lines, begin, end) +
           std::string(height - (end - begin), '\n') + "</pre>";
  };
  return "<div class=\"pair\">" + side(removed, before, part.beforeBegin, part.beforeEnd) +
         side(added, after, part.afterBegin, part.afterEnd) + "</div>\n";
}

std::string equalPart(const Lines &before, const Lines &after, DiffPart part, bool isFirst, bool isLast) {
  const size_t lines = part.beforeEnd - part.beforeBegin, above = isFirst ? 0 : contextLines,
               below = isLast ? 0 : contextLines;
  if (lines <= above + below + 1)
    return pairOf(before, after, part, "", "");
  DiffPart head = part, tail = part;
  head.beforeEnd = part.beforeBegin + above;
  head.afterEnd = part.afterBegin + above;
  tail.beforeBegin = part.beforeEnd - below;
  tail.afterBegin = part.afterEnd - below;
  return (above ? pairOf(before, after, head, "", "") : "") + "<div class=\"left-out\">" +
         std::to_string(lines - above - below) + " equal lines</div>\n" +
         (below ? pairOf(before, after, tail, "", "") : "");
}

std::string changeOf(const SymbolChange &change) {
  const Lines before = linesOf(change.before), after = linesOf(change.after);
  const std::vector<DiffPart> parts = diffOf(before, after);
  size_t removed = 0, added = 0;
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DiffPart &part = parts[i];
    if (part.equal) {
      text += equalPart(before, after, part, i == 0, i + 1 == parts.size());
      continue;
    }
    removed += part.beforeEnd - part.beforeBegin;
    added += part.afterEnd - part.afterBegin;
    text += pairOf(before, after, part, " class=\"removed\"", " class=\"added\"");
  }
  return "<details><summary>" + escapeMarkup(change.symbol) + " <span>\u2212" + std::to_string(removed) + " +" +
         std::to_string(added) +
         (change.before.empty()  ? ", new"
          : change.after.empty() ? ", gone"
                                 : "") +
         "</span></summary>\n" + text + "</details>\n";
}

std::string counted(size_t count, const char *what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

} // namespace

std::string irPage(const std::string &title, const PassHistory &history) {
  std::string body = "<h1>" + escapeMarkup(title) +
                     "</h1>\n<header><input id=\"query\" type=\"search\" placeholder=\"Search the IR; Enter: next\"> "
                     "<button id=\"previous\">Previous</button> <button id=\"next\">Next</button> "
                     "<button id=\"open\">Open or close all</button> <span id=\"status\"></span></header>\n"
                     "<p>Each pass with the functions that it changed: before on the left, after on the right. Values "
                     "that only got another number count as equal.</p>\n";
  std::string idle;
  for (size_t i = 0; i < history.passes.size(); ++i) {
    const PassRecord &record = history.passes[i];
    const std::string name = std::to_string(i + 1) + ". " + escapeMarkup(record.pass);
    if (record.changes.empty()) {
      idle += (idle.empty() ? "" : ", ") + name;
      continue;
    }
    body += "<h2>" + name + " <small>of the stage " + escapeMarkup(record.stage) + ": " +
            counted(record.changes.size(), "change") + "</small></h2>\n";
    for (const SymbolChange &change : record.changes)
      body += changeOf(change);
  }
  if (!idle.empty())
    body += "<p>These passes changed nothing: " + idle + ".</p>\n";
  for (const StageRecord &stage : history.stages) {
    body += "<h2>The program, " + escapeMarkup(stage.stage) + "</h2>\n";
    for (const auto &[symbol, text] : stage.text) {
      const Lines lines = linesOf(text);
      if (!lines.empty())
        body += "<details><summary>" + escapeMarkup(symbol) + " <span>" + counted(lines.size(), "line") +
                "</span></summary>\n<pre>\n" + escapedLines(lines, 0, lines.size()) + "</pre></details>\n";
    }
  }
  return htmlPage(title, irStyle, body, irScript);
}

} // namespace xfc
