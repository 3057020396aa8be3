// page.js SERVER TEXT ALTERNATIVES: what the page at the address shows after TEXT is translated, as JSON, with the map of each alternative.
// A document of its own stands for the browser's: just what the page's script uses.
const [base, text, alternatives] = process.argv.slice(2);
const { runInThisContext } = require('vm');

class Element {
  constructor(name) {
    this.name = name;
    this.children = [];
    this.own = '';
    this.listeners = {};
    this.style = {};
    this.value = '';
  }
  get textContent() { return this.own + this.children.map(child => child.textContent).join(''); }
  set textContent(text) {
    this.own = text;
    this.children = [];
  }
  append(...others) { this.children.push(...others); }
  prepend(...others) { this.children.unshift(...others); }
  addEventListener(event, listener) { this.listeners[event] = listener; }
  all(name) { return this.children.flatMap(child => [...(child.name === name ? [child] : []), ...child.all(name)]); }
}

const main = async () => {
  const page = await (await fetch(base)).text(), known = {};
  for (const [, id] of page.matchAll(/ id="([a-z]+)"/g))
    known[id] = new Element(id);
  globalThis.document = { getElementById: id => known[id], createElement: name => new Element(name) };
  const plainFetch = fetch;
  globalThis.fetch = (path, options) => plainFetch(base + path, options);
  runInThisContext(/<script>(.*)<\/script>/s.exec(page)[1]);
  known.text.value = text;
  known.alternatives.value = alternatives;
  known.attention.checked = true;
  const languages = await (await plainFetch(base + 'languages')).json();
  if (languages.length > 0)
    known.direction.value = JSON.stringify([languages[0].code, languages[0].targets[0]]);
  await known.form.listeners.submit({ preventDefault() {} });
  if (known.output.className === 'error')
    throw new Error(known.output.textContent);
  const cells = table => table.all('tr').map(row => [...row.all('th'), ...row.all('td')].map(cell => cell.title || cell.textContent));
  const maps = [];
  for (let i = 0; i < known.maps.children.length; i += 2) {
    const [choices, table] = known.maps.children.slice(i, i + 2);
    const first = JSON.stringify(cells(table));
    maps.push(choices.children.map(label => {
      label.children[0].listeners.change();
      return [label.textContent, cells(table)];
    }));
    if (JSON.stringify(maps.at(-1)[0][1]) !== first)
      throw new Error('at first, the map is not that of the best translation');
  }
  console.log(JSON.stringify({ output: known.output.textContent, others: known.others.textContent, maps }));
};

main().catch(error => {
  console.error(error);
  process.exit(1);
});
