// Finds the sections that a query is about: each of its words must occur there, as a word or as the beginning of one. They are ranked by BM25,
// with words in headings counted several times. `sections` (sections.js) is a list of [page and anchor, title of the page, heading, text].
'use strict';

const words = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];

function makeIndex(sections) {
  const index = {words: new Map(), lengths: [], sections};
  sections.forEach(([, page, heading, text], at) => {
    const counts = new Map();
    for (const [part, weight] of [[heading, 6], [page, 2], [text, 1]])
      for (const word of words(part)) counts.set(word, (counts.get(word) || 0) + weight);
    let length = 0;
    for (const [word, count] of counts) {
      if (!index.words.has(word)) index.words.set(word, []);
      index.words.get(word).push([at, count]);
      length += count;
    }
    index.lengths.push(length);
  });
  index.sorted = [...index.words.keys()].sort();
  index.average = index.lengths.reduce((sum, length) => sum + length, 0) / sections.length;
  return index;
}

// The score of each section for one word of the query. The beginning of a word counts less than the whole, and the less the longer that is.
function scores(index, word) {
  let at = 0;
  for (let end = index.sorted.length; at < end;) {
    const middle = (at + end) >> 1;
    if (index.sorted[middle] < word) at = middle + 1;
    else end = middle;
  }
  const found = new Map();
  for (; at < index.sorted.length && index.sorted[at].startsWith(word); ++at) {
    const places = index.words.get(index.sorted[at]);
    const rarity = Math.log(1 + (index.sections.length - places.length + 0.5) / (places.length + 0.5));
    const share = index.sorted[at] === word ? 1 : 0.5 * word.length / index.sorted[at].length;
    for (const [section, count] of places) {
      const score = share * rarity * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * index.lengths[section] / index.average));
      found.set(section, Math.max(found.get(section) || 0, score));
    }
  }
  return found;
}

function search(index, query, most = 12) {
  const asked = [...new Set(words(query))];
  if (!asked.length) return [];
  const [first, ...rest] = asked.map((word) => scores(index, word));
  const all = [...first].filter(([section]) => rest.every((found) => found.has(section)));
  const ranked = all.map(([section, score]) => [rest.reduce((sum, found) => sum + found.get(section), score), section]);
  return ranked.sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, most).map(([, section]) => index.sections[section]);
}

if (typeof document === 'undefined') {
  module.exports = {makeIndex, search};
} else {
  const query = document.getElementById('xfc-query'), results = document.getElementById('xfc-results');
  let index, selected = -1;

  // The text around the first of the query's words, with all of them marked.
  function excerpt(text, asked) {
    const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${asked.join('|')})`, 'giu');
    const at = Math.max(0, text.search(pattern)), begin = at < 60 ? 0 : text.indexOf(' ', at - 60) + 1;
    const shown = text.slice(begin, begin + 160), parts = [begin ? '… ' : ''];
    let end = 0;
    for (const match of shown.matchAll(pattern)) {
      const mark = document.createElement('mark');
      mark.textContent = match[0];
      parts.push(shown.slice(end, match.index), mark);
      end = match.index + match[0].length;
    }
    return [...parts, shown.slice(end), begin + 160 < text.length ? ' …' : ''];
  }

  function select(at) {
    const options = results.querySelectorAll('[role=option]');
    selected = options.length ? (at + options.length) % options.length : -1;
    options.forEach((option, number) => option.setAttribute('aria-selected', number === selected));
    if (selected >= 0) options[selected].scrollIntoView({block: 'nearest'});
    query.setAttribute('aria-activedescendant', selected < 0 ? '' : options[selected].id);
  }

  function show() {
    const asked = words(query.value);
    if (!index || !asked.length) return close();
    results.replaceChildren(...search(index, query.value).map(([where, page, heading, text], number) => {
      const option = document.createElement('li'), link = document.createElement('a'), small = document.createElement('small');
      option.id = `xfc-result${number}`;
      option.setAttribute('role', 'option');
      link.href = `${document.body.dataset.up}/${where}`;
      link.tabIndex = -1;
      small.append(...excerpt(text, asked));
      link.append(heading === page ? page : `${page}: ${heading}`, small);
      option.append(link);
      return option;
    }));
    if (!results.children.length) {
      const none = document.createElement('li');
      none.innerHTML = '<p>No section has all of these words.</p>';
      results.append(none);
    }
    results.hidden = false;
    query.setAttribute('aria-expanded', true);
    select(0);
  }

  function close() {
    results.hidden = true;
    query.setAttribute('aria-expanded', false);
    query.setAttribute('aria-activedescendant', '');
  }

  // The text of all sections is loaded when it is first needed, by a script, because pages opened as files may not fetch.
  query.addEventListener('focus', () => {
    if (index || document.getElementById('xfc-sections')) return;
    const script = document.createElement('script');
    script.id = 'xfc-sections';
    script.src = `${document.body.dataset.up}/sections.js`;
    script.onload = () => {
      index = makeIndex(sections);
      show();
    };
    document.head.append(script);
  });
  query.addEventListener('input', show);
  query.addEventListener('keydown', (event) => {
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') select(selected + (event.key === 'ArrowDown' ? 1 : -1));
    else if (event.key === 'Enter' && selected >= 0 && !results.hidden) {
      results.querySelectorAll('[role=option] a')[selected].click();
      close();
    } else if (event.key === 'Escape') {
      close();
      query.blur();
    } else return;
    event.preventDefault();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    query.focus();
    query.select();
  });
  document.addEventListener('click', (event) => {
    if (!event.target.closest('[role=search]') || event.target.closest('#xfc-results a')) close();
  });
}
