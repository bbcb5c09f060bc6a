"""Rules, folding: a copy of the text in which full-width, upper-case and traditional characters match as one, same length."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# Traditional characters whose simplified forms the rules use, each followed by that form. Values are
# cut from the original text, so a person who writes traditional characters is remembered in traditional characters.
_TRADITIONAL: Final = (
    "萬万與与專专業业東东兩两嚴严個个箇个豐丰臨临為为爲为麗丽舉举麼么麽么義义烏乌樂乐習习鄉乡書书買买亂乱爭争於于虧亏雲云亞亚產产産产親亲億亿僅仅從从倉仓們们價价眾众衆众優优夥伙會会偉伟傳传傷伤倫伦體体餘余彿佛侶侣脩修傾倾兒儿剋克"
    "黨党蘭兰關关興兴養养獸兽內内寫写軍军農农鼕冬馮冯沖冲衝冲決决況况淨净準准涼凉淩凌減减幾几鳳凤齣出劃划劉刘則则剛刚創创刪删別别彆别製制劑剂劇剧辦办務务動动勵励勞劳勢势區区醫医韆千昇升陞升華华協协單单賣卖盧卢卽即廠厂廳厅厤历曆历"
    "歷历壓压厭厌廈厦廚厨縣县參参蔘参雙双發发髮发變变疊叠隻只檯台臺台颱台葉叶號号嘆叹歎叹喫吃閤合衕同後后嚮向曏向呂吕嗎吗聽听啟启吳吴員员週周諮咨鹹咸嚥咽嗶哔喲哟喚唤囉啰餵喂嘍喽譟噪迴回團团糰团園园睏困圍围國国圖图聖圣場场壞坏塊块"
    "堅坚牆墙聲声處处備备復复複复覆复夠够頭头誇夸獎奖奧奥妝妆婦妇媽妈孃娘孫孙學学寧宁寶宝實实寵宠審审宮宫傢家賓宾對对尋寻導导壽寿將将爾尔嘗尝儘尽盡尽侷局層层屆届屬属嵗岁歲岁崗岗島岛嶺岭嶽岳鉅巨幣币佈布師师帶带幫帮乾干幹干榦干並并"
    "併并幷并倖幸廣广莊庄慶庆牀床庫库應应廢废開开異异棄弃張张彎弯彈弹強强歸归噹当當当彔录錄录録录徹彻徵征徑径逕径憶忆誌志唸念懷怀態态總总戀恋恆恒噁恶惡恶惱恼驚惊慣惯癒愈願愿懶懒戲戏戰战慼戚戶户纔才託托執执掃扫擾扰護护報报擡抬擔担"
    "枴拐柺拐擬拟擁拥撥拨擇择拚拼掛挂撾挝換换據据蒐搜攜携攝摄搖摇擼撸攢攒敵敌敎教數数齋斋鬥斗斷断無无時时崑昆顯显曉晓暈晕暫暂麯曲麴曲朮术術术硃朱樸朴機机雜杂桿杆條条來来楊杨傑杰鬆松闆板極极構构査查柵栅標标樹树樣样覈核檔档橋桥樑梁"
    "夢梦檢检棊棋樓楼歡欢歐欧殘残毀毁畢毕氣气匯汇彙汇滙汇漢汉湯汤瀋沈溝沟沒没霑沾氾泛汎泛註注潑泼澤泽潔洁測测濟济瀏浏潤润溫温遊游灣湾溼湿濕湿潰溃滾滚滿满濱滨潛潜滅灭靈灵爐炉點点煉炼鍊炼煙烟菸烟煩烦燒烧熱热愛爱爺爷狀状猶犹獨独獅狮"
    "獄狱豬猪貓猫蝟猬獻献獺獭瑪玛翫玩環环現现電电畫画畵画療疗瘍疡瘡疮癥症癇痫癡痴癮瘾癬癣癲癫鹽盐監监蓋盖盤盘眞真著着碼码礎础碩硕確确礙碍禮礼禱祷離离俬私鞦秋種种祕秘稱称稅税穩稳窮穷競竞筆笔築筑簽签籤签簡简籃篮類类粵粤糧粮醣糖係系"
    "繫系緊紧纍累糾纠紅红約约級级紀纪紉纫純纯綱纲納纳紙纸綫线線线練练組组細细織织終终紹绍經经結结繞绕遶绕給给絡络絕绝絶绝統统繼继績绩緒绪續续綽绰維维綜综綠绿緑绿緬缅編编縫缝縮缩網网羅罗罰罚羣群職职聯联聰聪肅肃腸肠膚肤腎肾腫肿膽胆"
    "勝胜衚胡鬍胡膠胶脈脉臟脏髒脏腦脑腳脚脫脱臉脸臘腊騰腾緻致捨舍艦舰藝艺節节囌苏蘇苏蘋苹範范薦荐榮荣蕁荨葯药藥药獲获穫获營营薩萨蔣蒋懞蒙濛蒙矇蒙藍蓝慮虑虛虚雖虽蝦虾蟻蚁螞蚂蠻蛮蠍蝎補补錶表裝装見见觀观規规視视覽览覺觉觸触譽誉計计"
    "訂订認认討讨讓让訓训議议訊讯記记講讲許许論论設设証证證证評评識识訴诉診诊詞词譯译試试詩诗誠诚話话誕诞詢询該该詳详語语誤误說说説说誒诶請请諸诸讀读課课誰谁調调諒谅談谈謊谎謝谢謹谨譚谭穀谷貝贝負负財财責责敗败賬账貨货質质貧贫購购"
    "貫贯貴贵貿贸費费賀贺賈贾資资賅赅賭赌賞赏賴赖贊赞贈赠趙赵趕赶踐践車车轉转輪轮軟软輕轻較较輔辅輛辆輩辈輯辑輸输辭辞辯辩邊边遼辽達达遷迁過过運运還还這这進进遠远違违連连遲迟跡迹適适選选遜逊遞递邏逻遺遗鄧邓郵邮鄒邹鄰邻鬱郁鄭郑醬酱"
    "痠酸埰采寀采採采釋释裏里裡里針针釘钉釣钓鈣钙鈡钟鍾钟鐘钟鋼钢鈅钥鑰钥錢钱鐵铁鈴铃銘铭銀银鋪铺鏈链銷销鎖锁鍋锅錯错錫锡鍵键鍛锻鎭镇鎮镇鏡镜長长門门閉闭問问閑闲閒闲間间鬧闹閨闺聞闻閩闽閱阅閲阅閻阎隊队陽阳陰阴陣阵階阶際际陸陆陳陈"
    "陝陕險险隨随隱隐隸隶難难僱雇霧雾黴霉靜静麪面麫面麵面韋韦韓韩韻韵項项順顺須须鬚须顧顾頓顿預预領领頸颈頻频顆颗題题顏颜顔颜額额顫颤風风飛飞飯饭飲饮飾饰飽饱餃饺餅饼舘馆館馆馬马馳驰駛驶駕驾罵骂駡骂驕骄驗验騎骑騙骗驟骤魚鱼魯鲁鮮鲜"
    "鯨鲸鳥鸟雞鸡鷄鸡鴨鸭鵝鹅鵡鹉鵬鹏鸚鹦麥麦麩麸黃黄齊齐齒齿齡龄龍龙龔龚龜龟"
    "繳缴墊垫妳你憑凭揚扬攤摊曬晒棟栋棧栈渾浑漲涨澆浇燈灯瞭了磚砖禍祸粧妆紋纹紗纱綵彩綿绵葷荤賽赛釐厘銅铜鑑鉴鑒鉴頁页喺在"
)


@lru_cache(maxsize=1)
def _table() -> dict[int, str]:
    table = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    table.update(
        {
            0x3000: " ",
            0x00A0: " ",
            0x2019: "'",
            0x2018: "'",
            0x02BC: "'",
            0x200B: " ",
            0xFEFF: " ",
            0x09: " ",
            0x0D: " ",
        }
    )
    pairs = zip(_TRADITIONAL[::2], _TRADITIONAL[1::2], strict=True)
    table.update({ord(old): new for old, new in pairs if old != new})
    return table


def fold(text: str) -> str:
    """A lower-case, half-width, simplified copy; character i of it stands for character i of `text`."""
    folded = text.translate(_table())
    lowered = folded.lower()
    if len(lowered) == len(folded):
        return lowered
    # "İ" and a few others grow when lowered; those characters stay as they are.
    return "".join(low if len(low := char.lower()) == 1 else char for char in folded)
