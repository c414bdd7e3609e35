/**
 * Returns the styles of a drawing for light and dark pages. Its colours follow the preference of the reader's
 * system.
 */
export function drawingStyle(fontSize: number): string {
  return `
svg{--paper:#fff;--ink:#1f2328;--faint:#d0d7de}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--faint:#3d444d}}
.paper{fill:var(--paper)}
text{font:${fontSize}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:var(--ink)}
.title{font-size:${fontSize + 3}px;font-weight:600}`;
}
